//! What only a real API server can say about deploy/: schemas, CEL, pod security, RBAC.
