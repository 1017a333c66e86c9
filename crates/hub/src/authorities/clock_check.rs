//! Compares the hub's clock with the API server's. A clock that has jumped ahead would make the hub drop keys and
//! anchors that are in use, and no step of a lineage can be taken back.

use hyper::Request;
use hyper::header::DATE;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::Client;
use kube::client::Body;

use addon_signer_core::ca::lineage::{CLOCKS_DIFFER, WaitsFor};
use addon_signer_core::timestamp::Timestamp;

/// What a step that was decided on at `now` waits for, if the API server's clock does not confirm `now`.
///
/// The API server is asked after the decision, so a slow answer does not make the clock look as if it were ahead.
pub(super) async fn clock_problem(client: &Client, now: Timestamp) -> Result<Option<WaitsFor>, kube::Error> {
    Ok(match self::now(client).await? {
        Some(date) if now <= date.plus(CLOCKS_DIFFER) => None,
        Some(date) => Some(WaitsFor::Clock { minutes: date.until(now).as_secs() / 60 }),
        None => Some(WaitsFor::ServerTime),
    })
}

/// The API server's time, if the answer has it.
pub(crate) async fn now(client: &Client) -> Result<Option<Timestamp>, kube::Error> {
    let request = Request::get("/version").body(Body::empty()).map_err(kube::Error::HttpError)?;
    // Every answer has the time, even a refusal.
    let answer = client.send(request).await?;
    Ok(answer.headers().get(DATE).and_then(|date| date.to_str().ok()).and_then(read))
}

/// Reads the time of RFC 9110, section 5.6.7, which is one of RFC 2822 in GMT.
fn read(date: &str) -> Option<Timestamp> {
    let date = rfc2822::parse(date).ok()?;
    Some(Timestamp::from_unix(date.timestamp().as_second()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_are_read() {
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Timestamp::from_unix(784_111_777)));
        assert_eq!(read("soon"), None);
    }
}
