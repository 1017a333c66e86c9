//! Schemas of Kubernetes' own types in the CRDs. k8s-openapi can make them for all its types at once, which takes a
//! build longer than everything else that it does with them.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The schema of a `metav1.Time`.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// The schema of an optional `metav1.Time`.
pub(crate) fn optional_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "nullable": true })
}

/// The schema of a list of `metav1.Condition`s.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": {
        "description": "One aspect of the object's state.",
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {
                "description": "When the status last changed.",
                "format": "date-time",
                "type": "string",
            },
            "message": { "description": "Details, in one sentence.", "type": "string" },
            "observedGeneration": {
                "description": "The .metadata.generation that the condition is about.",
                "format": "int64",
                "type": "integer",
            },
            "reason": { "description": "The reason, in CamelCase.", "type": "string" },
            "status": { "description": "True, False or Unknown.", "type": "string" },
            "type": { "description": "What the condition is about, in CamelCase.", "type": "string" },
        },
    }})
}

/// The schema of an optional `metav1.LabelSelector`.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "properties": {
            "matchExpressions": {
                "description": "Conditions that must all be met.",
                "type": "array",
                "items": {
                    "description": "A condition on one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "description": "The label.", "type": "string" },
                        "operator": { "description": "In, NotIn, Exists or DoesNotExist.", "type": "string" },
                        "values": {
                            "description": "The values for In and NotIn, at least one; empty for the others.",
                            "type": "array",
                            "items": { "type": "string" },
                        },
                    },
                },
            },
            "matchLabels": {
                "description": "Labels that must all have these values. An empty selector selects all namespaces. \
                                With a selector, everyone who may label namespaces decides.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
        },
    })
}
