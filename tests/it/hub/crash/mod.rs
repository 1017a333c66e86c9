//! A hub is killed by SIGKILL at any moment: no certificate is without a row in the ledger, and no CSR gets two
//! (invariant I13).

pub(super) mod books;
mod boundaries;
mod file;
mod frozen;
pub(super) mod kit;
mod load;
mod moments;
mod revoked;
