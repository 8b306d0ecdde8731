//! Number formats: counts, speeds, times, shares. The caller of [`tokens`] marks an estimate.
//!
//! Units: counts in tokens or characters, times in seconds or milliseconds as named, shares 0 to 1.

use crate::base::Bytes;

/// `12,345`
pub fn count(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `950`, `61k`, `1.2M`
pub fn short_count(n: usize) -> String {
    scaled(n, 1000)
}

fn scaled(n: usize, base: usize) -> String {
    let value = n as f64 / base as f64;
    match n {
        _ if n < 1000 => n.to_string(),
        _ if value < 9.95 => trim_zero(format!("{value:.1}"), "k"),
        _ if value < 999.5 => format!("{value:.0}k"),
        _ => trim_zero(format!("{:.1}", value / base as f64), "M"),
    }
}

fn trim_zero(number: String, unit: &str) -> String {
    format!("{}{unit}", number.strip_suffix(".0").unwrap_or(&number))
}

/// A model's window: `128k`, `8k`, `32,000`
pub fn window(n: usize) -> String {
    if n >= 1024 && n.is_multiple_of(1024) { scaled(n, 1024) } else { short_count(n) }
}

/// `61k of 128k tokens`: both numbers in the same unit
pub fn context(used: usize, limit: usize) -> String {
    let base = if limit.is_multiple_of(1024) { 1024 } else { 1000 };
    format!("{} of {} tokens", scaled(used, base), scaled(limit, base))
}

/// `~3k tokens` or `3,012 tokens`
pub fn tokens(n: usize, exact: bool) -> String {
    if exact { format!("{} tokens", count(n)) } else { format!("~{} tokens", short_count(n)) }
}

/// `31.2 tok/s`, `1,850 tok/s`; `N/A` without a measurement
pub fn speed(tokens_per_s: f64) -> String {
    match tokens_per_s {
        v if !v.is_finite() || v <= 0.0 => "N/A".to_owned(),
        v if v < 99.95 => format!("{v:.1} tok/s"),
        v => format!("{} tok/s", count(v.round() as usize)),
    }
}

/// `0.4 s`, `9 s`, `2 min 10 s`, `1 h 5 min`
pub fn seconds(s: f64) -> String {
    if !s.is_finite() || s < 0.0 {
        return "N/A".to_owned();
    }
    if s < 9.95 {
        return format!("{s:.1} s");
    }
    let whole = s.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// An estimate: `~0.4 s`, `under 0.1 s`
pub fn about_seconds(s: f64) -> String {
    if (0.0..0.1).contains(&s) { "under 0.1 s".to_owned() } else { format!("~{}", seconds(s)) }
}

/// Time for `n` tokens: `9 s left`; `N/A` before a speed is known
pub fn time_left(n: usize, tokens_per_s: f64) -> String {
    if !tokens_per_s.is_finite() || tokens_per_s <= 0.0 {
        return "time left N/A".to_owned();
    }
    let left = n as f64 / tokens_per_s;
    match left {
        _ if left < 1.0 => "under 1 s left".to_owned(),
        _ if left < 59.5 => format!("{left:.0} s left"),
        _ => format!("{} left", seconds(left)),
    }
}

/// `41 %`; rounded down, so 100 % only if all is done
pub fn percent(done: usize, total: usize) -> String {
    if total == 0 {
        return "0 %".to_owned();
    }
    let share = (done as f64 / total as f64 * 100.0).floor().clamp(0.0, 100.0);
    format!("{share:.0} %")
}

/// `5.8M parameters`
pub fn parameters(n: u64) -> String {
    let n = n as f64;
    match n {
        _ if n >= 999.5e6 => format!("{:.1}B parameters", n / 1e9),
        _ if n >= 99.5e6 => format!("{:.0}M parameters", n / 1e6),
        _ => format!("{:.1}M parameters", n / 1e6),
    }
}

/// `12.4 MiB`
pub fn bytes(n: u64) -> String {
    Bytes(n).to_string()
}

/// `1.91 of 2.00 GiB`, `12.4 MiB of 2.00 GiB`: the unit is written once if it is the same
pub fn bytes_of(used: u64, limit: u64) -> String {
    let (used, limit) = (bytes(used), bytes(limit));
    match (used.split_once(' '), limit.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} of {limit}"),
        _ => format!("{used} of {limit}"),
    }
}

/// `1,920 MiB/s`, `71.2 MiB/s`, `0.51 MiB/s`: always the same unit, so that a column can be compared
pub fn mib_per_s(bytes_per_s: f64) -> String {
    match bytes_per_s / (1u64 << 20) as f64 {
        v if !v.is_finite() || v < 0.0 => "N/A".to_owned(),
        v if v >= 99.95 => format!("{} MiB/s", count(v.round() as usize)),
        v if v >= 9.995 => format!("{v:.1} MiB/s"),
        0.0 => "0 MiB/s".to_owned(),
        v => format!("{v:.2} MiB/s"),
    }
}

/// `0.42 ms`, `12.3 ms`, `2,140 ms`: milliseconds in three digits
pub fn millis(ms: f64) -> String {
    match ms {
        v if !v.is_finite() || v < 0.0 => "N/A".to_owned(),
        v if v >= 99.95 => format!("{} ms", count(v.round() as usize)),
        v if v >= 9.995 => format!("{v:.1} ms"),
        v => format!("{v:.2} ms"),
    }
}

/// `0.42 ms`, `146 ms`, `2.14 s`, `32.0 s`: three digits
pub fn took(ms: f64) -> String {
    match ms / 1e3 {
        s if s < 0.9995 => millis(ms),
        s if s < 9.995 => format!("{s:.2} s"),
        s if s < 99.95 => format!("{s:.1} s"),
        s => seconds(s),
    }
}

/// `21 Nov 2026, 14:05` in this machine's time zone; `N/A` outside the calendar
pub fn date(unix_seconds: i64) -> String {
    let zone = jiff::tz::TimeZone::system();
    let time = jiff::Timestamp::from_second(unix_seconds).map(|t| t.to_zoned(zone));
    time.map_or_else(|_| "N/A".to_owned(), |t| t.strftime("%-d %b %Y, %H:%M").to_string())
}

/// The first line of `text`, at most `max` characters, cut at a word if possible.
pub fn title(text: &str, max: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default().trim();
    if line.chars().count() <= max {
        return line.to_owned();
    }
    let cut: String = line.chars().take(max).collect();
    let whole = line.chars().nth(max).is_some_and(char::is_whitespace);
    let space = cut.rfind(' ').filter(|&i| !whole && i > max / 2);
    let cut = space.and_then(|i| cut.get(..i)).unwrap_or(&cut);
    format!("{}…", cut.trim_end_matches([' ', ',', '.', ';', ':']))
}

/// A name in `max` characters at most: its middle is left out, so that beginning and extension stay.
pub fn shorten_middle(name: &str, max: usize) -> String {
    let n = name.chars().count();
    if n <= max {
        return name.to_owned();
    }
    let n_shown = max.saturating_sub(1);
    let (n_first, n_last) = (n_shown.div_ceil(2), n_shown / 2);
    let (first, last): (String, String) = (name.chars().take(n_first).collect(), name.chars().skip(n - n_last).collect());
    format!("{}…{}", first.trim_end(), last.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_loses_its_middle() {
        assert_eq!(shorten_middle("notes.txt", 9), "notes.txt");
        assert_eq!(shorten_middle("the diary of samuel pepys, volume 7.epub", 20), "the diary…me 7.epub");
        assert_eq!(shorten_middle("日本語日本語", 4), "日本…語");
        assert_eq!(shorten_middle("ab", 1), "…");
    }

    #[test]
    fn counts_are_grouped_and_shortened() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        for (n, text) in [(950, "950"), (1000, "1k"), (1250, "1.2k"), (61_400, "61k"), (1_200_000, "1.2M")] {
            assert_eq!(short_count(n), text);
        }
    }

    #[test]
    fn context_uses_one_unit_for_both_numbers() {
        assert_eq!(context(62_464, 131_072), "61k of 128k tokens");
        assert_eq!(context(131_072, 131_072), "128k of 128k tokens");
        assert_eq!(context(61_000, 100_000), "61k of 100k tokens");
        assert_eq!(window(131_072), "128k");
        assert_eq!(window(512), "512");
    }

    #[test]
    fn speeds_and_times_have_sensible_digits() {
        assert_eq!(speed(31.24), "31.2 tok/s");
        assert_eq!(speed(1850.4), "1,850 tok/s");
        assert_eq!(speed(f64::NAN), "N/A");
        assert_eq!(seconds(0.41), "0.4 s");
        assert_eq!(about_seconds(0.02), "under 0.1 s");
        assert_eq!(about_seconds(3.0), "~3.0 s");
        assert_eq!(seconds(130.0), "2 min 10 s");
        assert_eq!(seconds(3900.0), "1 h 5 min");
        assert_eq!(time_left(17_700, 1850.0), "10 s left");
        assert_eq!(time_left(500, 100.0), "5 s left");
        assert_eq!(time_left(500, 1.0), "8 min 20 s left");
        assert_eq!(time_left(10, 0.0), "time left N/A");
        assert_eq!(time_left(10, 1000.0), "under 1 s left");
    }

    #[test]
    fn bytes_of_a_limit_say_the_unit_once() {
        assert_eq!(bytes_of(0, 2 << 30), "0 B of 2.00 GiB");
        assert_eq!(bytes_of(3 << 29, 2 << 30), "1.50 of 2.00 GiB");
        assert_eq!(bytes_of(12 << 20, 2 << 30), "12.0 MiB of 2.00 GiB");
    }

    #[test]
    fn rates_and_milliseconds_have_three_digits() {
        let mib = |v: f64| mib_per_s(v * 1_048_576.0);
        assert_eq!([mib(0.0), mib(0.5), mib(71.23), mib(1966.4)], ["0 MiB/s", "0.50 MiB/s", "71.2 MiB/s", "1,966 MiB/s"]);
        assert_eq!([millis(0.417), millis(12.34), millis(2140.2)], ["0.42 ms", "12.3 ms", "2,140 ms"]);
        assert_eq!([took(0.417), took(146.2), took(2140.2), took(31_993.0)], ["0.42 ms", "146 ms", "2.14 s", "32.0 s"]);
        assert_eq!((took(f64::NAN), took(130_000.0)), ("N/A".into(), "2 min 10 s".into()));
        assert_eq!((mib_per_s(f64::NAN), millis(-1.0)), ("N/A".into(), "N/A".into()));
    }

    #[test]
    fn date_has_day_month_and_year() {
        assert!(date(1_795_000_000).contains("Nov 2026"), "{}", date(1_795_000_000));
        assert_eq!(date(i64::MAX), "N/A");
    }

    #[test]
    fn percent_never_shows_done_early() {
        assert_eq!(percent(12_300, 30_000), "41 %");
        assert_eq!(percent(29_999, 30_000), "99 %");
        assert_eq!(percent(30_000, 30_000), "100 %");
        assert_eq!(percent(0, 0), "0 %");
    }

    #[test]
    fn title_of_a_long_question_ends_at_a_word() {
        assert_eq!(title("What burned first?", 40), "What burned first?");
        assert_eq!(title("What burned first, and who was to blame for it all?", 30), "What burned first, and who was…");
        assert_eq!(title("ééééééé", 4), "éééé…");
        assert_eq!(title("", 4), "");
    }
}
