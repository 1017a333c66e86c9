//! Authentication: bearer tokens, and impersonation for cluster administrators.

use std::collections::HashMap;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;

use super::status::ApiError;

/// The group that may do anything, including impersonation.
const MASTERS: &str = "system:masters";
/// The group of every known caller.
const AUTHENTICATED: &str = "system:authenticated";

/// A caller, as Kubernetes' `user.Info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
}

impl User {
    /// A user in these groups and in `system:authenticated`, which the server adds.
    pub(super) fn new(name: &str, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { name: name.to_owned(), uid: String::new(), groups }
    }
}

/// The caller of a request with these headers, after impersonation.
pub(super) fn caller(headers: &HeaderMap, tokens: &HashMap<String, User>) -> Result<User, ApiError> {
    let user = header(headers, AUTHORIZATION.as_str())
        .and_then(|value| value.strip_prefix("Bearer "))
        .and_then(|token| tokens.get(token.trim()))
        .ok_or(ApiError::Unauthorized)?;
    let groups: Vec<&str> =
        headers.get_all("impersonate-group").iter().filter_map(|value| value.to_str().ok()).collect();
    let Some(name) = header(headers, "impersonate-user") else {
        if groups.is_empty() {
            return Ok(user.clone());
        }
        let words = "requested groups without impersonating a user name";
        return Err(ApiError::BadRequest(words.into()));
    };
    if !user.groups.iter().any(|group| group == MASTERS) {
        let who = &user.name;
        return Err(ApiError::Forbidden(format!(
            "users {name:?} is forbidden: User {who:?} cannot impersonate resource \"users\" \
             in API group \"\" at the cluster scope"
        )));
    }
    let uid = header(headers, "impersonate-uid").unwrap_or("").to_owned();
    Ok(User { uid, ..User::new(name, &groups) })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_tokens() -> HashMap<String, User> {
        HashMap::from([
            ("t-admin".to_owned(), User::new("admin", &[MASTERS])),
            ("t-agent".to_owned(), User::new("agent", &["agents"])),
        ])
    }

    fn mk_headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_token_is_a_user_and_anything_else_is_nobody() {
        let known = mk_headers(&[("authorization", "Bearer t-agent")]);
        let user = caller(&known, &mk_tokens()).unwrap();
        assert_eq!(user.groups, ["agents", AUTHENTICATED]);
        for headers in [
            mk_headers(&[]),
            mk_headers(&[("authorization", "Bearer t-")]),
            mk_headers(&[("authorization", "Basic t-agent")]),
        ] {
            let refused = caller(&headers, &mk_tokens());
            assert!(matches!(refused, Err(ApiError::Unauthorized)));
        }
    }

    #[test]
    fn only_masters_impersonate() {
        let as_bob = |token| {
            mk_headers(&[
                ("authorization", token),
                ("impersonate-user", "bob"),
                ("impersonate-group", "one"),
                ("impersonate-group", "two"),
            ])
        };
        let bob = caller(&as_bob("Bearer t-admin"), &mk_tokens()).unwrap();
        assert_eq!(bob, User::new("bob", &["one", "two"]));
        let refused = caller(&as_bob("Bearer t-agent"), &mk_tokens());
        assert!(matches!(refused, Err(ApiError::Forbidden(_))));
    }
}
