//! The inventory as the API server reaches it: whom its listener lets in, on both kinds of hubs; and through a real API
//! server with a kubeconfig and RBAC.

mod aggregated;
mod kit;
mod listener;
