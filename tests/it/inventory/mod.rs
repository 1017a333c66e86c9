//! Tests of the inventory: whom its listener lets in, on both kinds of hubs, and its use through a real API server with
//! a kubeconfig and RBAC.

mod aggregated;
mod kit;
mod listener;
