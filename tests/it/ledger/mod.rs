//! The ledger as its stores and its checkers have it.

mod checker;
mod format;
