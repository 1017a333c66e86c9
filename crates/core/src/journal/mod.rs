//! The ledger's format: entries that have the hash of the entry before, checkpoints that vouch for all entries up to
//! one, and the check of both. `docs/ledger-format.md` documents every byte, so that others can check a ledger without
//! this program.

mod authority_step;
pub mod chain;
pub mod checkpoint;
pub mod entry;
pub mod record;
pub mod state;
pub mod uid;
