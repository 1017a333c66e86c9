//! Lines of authorities over time.

mod crashes;
mod damage;
mod finish;
mod in_time;
mod kit;
mod rotation;
mod secrecy;
mod serving;
mod shown;
mod silence;
mod two_hubs;
mod years;

pub(super) use kit::{OnServer, rotate};
