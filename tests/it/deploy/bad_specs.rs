//! Values that the API server and the hub must refuse in an otherwise good object.

use kube::Api;
use kube::api::{DynamicObject, PostParams};
use serde::Deserialize;
use serde_json::Value;

/// A good object, and values of its fields.
pub(super) struct Samples {
    pub(super) good: Value,
    /// Values that are refused.
    pub(super) bad: Vec<BadSpec>,
    /// Others that are accepted.
    pub(super) also_good: Vec<(&'static str, Value)>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BadSpec {
    set: String,
    to: Value,
    field: String,
    says: String,
    #[serde(default)]
    only: Option<Only>,
}

/// Who alone refuses a value.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Only {
    /// The API server; the hub would do nothing wrong with it.
    Schema,
    /// The hub; the API server cannot check it.
    Constructor,
}

impl BadSpec {
    /// Whether a cause is about the field, or about an item of it, and gives the reason.
    fn is_reported(&self, field: &str, message: &str) -> bool {
        let rest = field.strip_prefix("spec.").and_then(|path| path.strip_prefix(&self.field));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('[')) && message.contains(&self.says)
    }
}

impl Samples {
    /// The good object with one value of its spec replaced.
    pub(super) fn with(&self, pointer: &str, value: &Value) -> Value {
        let mut object = self.good.clone();
        let mut place = &mut object["spec"];
        for step in pointer.split('.') {
            place = match step.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[step],
            };
        }
        *place = value.clone();
        object
    }

    /// Checks that the API server refuses the bad values, names the fields, and accepts the good ones.
    pub(super) async fn check_schema(&self, objects: &Api<DynamicObject>) {
        let mut surprises = Vec::new();
        for bad in &self.bad {
            let answer = try_create(objects, &self.with(&bad.set, &bad.to)).await;
            if bad.only == Some(Only::Constructor) {
                answer.unwrap_or_else(|error| panic!("{bad:?}: {error}"));
                continue;
            }
            let causes = causes(answer);
            let is_evaluated = |message: &str| !message.contains(" evaluating rule: ");
            if !causes.iter().any(|(field, message)| bad.is_reported(field, message) && is_evaluated(message)) {
                surprises.push((bad, causes));
            }
        }
        assert!(surprises.is_empty(), "{surprises:#?}");
        for (field, value) in &self.also_good {
            let good = self.with(field, value);
            try_create(objects, &good).await.unwrap_or_else(|error| panic!("{field}: {value}: {error}"));
        }
    }

    /// What the schema lets through is out of effect, so the API server should refuse what the hub refuses; and a hub
    /// whose CRD is another version's must not take what the schema would have refused.
    pub(super) fn check_constructor(&self, read: impl Fn(&Value) -> Result<(), String>) {
        read(&self.good).unwrap();
        let is_surprise =
            |bad: &&BadSpec| read(&self.with(&bad.set, &bad.to)).is_ok() != (bad.only == Some(Only::Schema));
        let surprises: Vec<_> = self.bad.iter().filter(is_surprise).collect();
        assert!(surprises.is_empty(), "{surprises:#?}");
        for (field, value) in &self.also_good {
            read(&self.with(field, value)).unwrap_or_else(|error| panic!("{field}: {value}: {error}"));
        }
    }
}

/// Does the same as `kubectl create --dry-run=server`, because `apply` reports a duplicate without its field.
async fn try_create(objects: &Api<DynamicObject>, object: &Value) -> kube::Result<DynamicObject> {
    let dry_run = PostParams { dry_run: true, field_manager: None };
    objects.create(&dry_run, &serde_json::from_value(object.clone()).unwrap()).await
}

/// The field and the message of every objection of the API server; empty if it accepts the object.
pub(super) fn causes(answer: kube::Result<DynamicObject>) -> Vec<(String, String)> {
    match answer {
        Ok(_) => Vec::new(),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.map(|details| details.causes).unwrap_or_default();
            causes.into_iter().map(|cause| (cause.field, cause.message)).collect()
        }
        Err(error) => panic!("{error}"),
    }
}
