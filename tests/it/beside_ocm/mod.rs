//! Tests beside OCM's own controllers and agents that wait for minutes. libtest starts tests in the order of their
//! names, so that these run beside all others and not at the end, alone.

mod agent;
mod hub_trust;
mod registrations;
mod remade;
mod story;
