//! Lineages of authorities over time.

mod crashes;
mod damage;
mod deleted;
mod distrust;
mod edited;
mod growth;
mod in_time;
mod killed;
pub(super) mod kit;
mod rollback;
mod rotating;
mod rotation;
mod secrecy;
mod serving;
mod silence;
mod swapped;
mod two_hubs;
mod unpublished;
mod years;

pub(super) use distrust::Person;
pub(crate) use kit::issue;
pub(super) use kit::{OnServer, revoke, revoke_all, rotate, taint};
pub(super) use serving::{not_after, report};
