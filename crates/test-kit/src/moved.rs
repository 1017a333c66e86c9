//! Answers of an API server whose clock is as wrong as the hub's: a test can then make something that is already old.

use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::Response;
use hyper::body::{Bytes, Frame};
use hyper::header::DATE;
use k8s_openapi::jiff::{self, fmt::rfc2822};
use kube::client::Body;

/// What stands before the time at which an object was made.
const MADE: &[u8] = br#""creationTimestamp":""#;
/// The body of such an answer.
type MovedBody = UnsyncBoxBody<Bytes, <Body as hyper::body::Body>::Error>;

const TIME: usize = "2026-01-01T00:00:00Z".len();

/// How many seconds a clock was moved ahead.
pub(crate) fn ahead(clock: &Clock) -> i64 {
    clock.now().unix() - Clock::default().now().unix()
}

/// The answer with its `Date` moved as `clock` was moved, and, if the clock is late, the times of the addons and
/// clusters in it.
pub(crate) fn moved(mut answer: Response<Body>, path: &str, clock: &Clock) -> Response<MovedBody> {
    let by = ahead(clock);
    if let Some(date) = answer.headers_mut().get_mut(DATE) {
        let sent = rfc2822::parse(date.to_str().unwrap()).unwrap().timestamp().as_second();
        let shown = jiff::Timestamp::from_second(sent + by).unwrap();
        let text = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&shown).unwrap();
        *date = text.parse().unwrap();
    }
    let kinds = ["/managedclusteraddons", "/managedclusters"];
    let is_made = kinds.iter().any(|kind| path.ends_with(kind) || path.contains(&format!("{kind}/")));
    let mut rest = Vec::new();
    answer.map(|body| {
        let body = body.map_frame(move |frame| match frame.into_data() {
            Ok(data) if by < 0 && is_made => Frame::data(made(&mut rest, &data, by)),
            Ok(data) => Frame::data(data),
            Err(frame) => frame,
        });
        body.boxed_unsync()
    })
}

/// Moves every time at which an object was made. Keeps in `rest` what may be the beginning of one at the end of `data`;
/// nothing is left at the end of JSON.
pub fn made(rest: &mut Vec<u8>, data: &[u8], by: i64) -> Bytes {
    let mut all = [std::mem::take(rest), data.to_vec()].concat();
    let mut at = 0;
    while let Some(found) = all[at..].windows(MADE.len()).position(|part| part == MADE) {
        let (start, end) = (at + found + MADE.len(), at + found + MADE.len() + TIME);
        if end > all.len() {
            *rest = all.split_off(at + found);
            return all.into();
        }
        let time = Timestamp::from_rfc3339(str::from_utf8(&all[start..end]).unwrap()).unwrap();
        all[start..end].copy_from_slice(Timestamp::from_unix(time.unix() + by).to_string().as_bytes());
        at = end;
    }
    let cut = (1..MADE.len()).rev().find(|length| all[at..].ends_with(&MADE[..*length])).unwrap_or_default();
    *rest = all.split_off(all.len() - cut);
    all.into()
}
