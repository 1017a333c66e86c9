//! The AddOnSigner resource and the slices of OCM's types that we use.
