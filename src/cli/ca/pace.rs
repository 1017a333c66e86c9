//! How fast clusters follow a step, for `--watch`.

use std::time::Duration;

/// What was counted first, and when.
#[derive(Debug, Default)]
pub(super) struct Pace(Option<(Duration, i64)>);

impl Pace {
    /// Says how many more have become ready per minute since the first request, and how long the rest takes at this
    /// rate. Empty while that is not known. `elapsed` is the time since the command began, `counts` how many of how
    /// many are ready.
    pub(super) fn told(&mut self, elapsed: Duration, counts: Option<(i64, i64)>) -> String {
        let Some((ready, total)) = counts else {
            self.0 = None;
            return String::new();
        };
        let (began, first) = *self.0.get_or_insert((elapsed, ready));
        let (more, seconds) = (ready - first, elapsed.saturating_sub(began).as_secs_f64());
        if more <= 0 || seconds <= 0.0 || ready >= total {
            return String::new();
        }
        let per_second = more as f64 / seconds;
        let rest = (total - ready) as f64 / per_second;
        let rest = if rest < 90.0 { format!("{rest:.0} s") } else { format!("{:.0} min", rest / 60.0) };
        format!(" ({:.0} per minute, about {rest} left)", per_second * 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_is_told_once_more_are_ready() {
        let mut pace = Pace::default();
        let mut told = |seconds, counts| pace.told(Duration::from_secs(seconds), counts);
        assert_eq!(told(5, Some((100, 1_000))), "");
        assert_eq!(told(15, Some((100, 1_000))), "");
        assert_eq!(told(25, Some((300, 1_000))), " (600 per minute, about 70 s left)");
        assert_eq!(told(125, Some((400, 1_000))), " (150 per minute, about 4 min left)");
        assert_eq!(told(130, Some((1_000, 1_000))), "");
        assert_eq!(told(140, None), "");
        assert_eq!(told(150, Some((0, 10))), "", "another step begins anew");
        assert_eq!(told(160, Some((5, 10))), " (30 per minute, about 10 s left)");
    }
}
