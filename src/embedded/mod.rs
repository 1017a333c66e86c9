//! An in-process stand-in for a hub's Kubernetes API.
