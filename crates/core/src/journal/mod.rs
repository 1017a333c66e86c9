//! The record of what was decided, as text: entries that hold the hash of the one before, a checkpoint that vouches for all
//! of them, and the check of both. `docs/ledger-format.md` documents every byte, so that others can check without this
//! program.

pub mod chain;
pub mod checkpoint;
pub mod entry;
pub mod record;
