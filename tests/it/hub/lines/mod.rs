//! Lines of authorities over time.

mod crashes;
mod damage;
mod kit;
mod rotation;
mod secrecy;
mod serving;
mod silence;
mod two_hubs;

pub(super) use kit::rotate;
