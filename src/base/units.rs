//! Byte counts: parsed from text like `64MiB`, printed in IEC units with three significant digits.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A text not of the form `64MiB`, `2GiB` or `1.5GB`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a size. Write it as 64MiB, 2GiB or 1.5GB")]
pub struct ParseBytesError(pub String);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        // 999.5 and above would print as "1000"; the next unit keeps three digits.
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let decimals = match () {
            () if unit == 0 || value >= 99.95 => 0,
            () if value >= 9.995 => 1,
            () => 2,
        };
        write!(f, "{value:.decimals$} {}", UNITS[unit])
    }
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let error = || ParseBytesError(s.to_owned());
        let s = s.trim();
        let split = s.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(s.len());
        let (number, unit) = s.split_at(split);
        let number: f64 = number.parse().map_err(|_| error())?;
        let scale: f64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "kib" | "k" => 1024.0,
            "mib" | "m" => 1024.0 * 1024.0,
            "gib" | "g" => 1024.0 * 1024.0 * 1024.0,
            "tib" | "t" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return Err(error()),
        };
        let bytes = number * scale;
        if !bytes.is_finite() || bytes < 0.0 || bytes >= u64::MAX as f64 {
            return Err(error());
        }
        Ok(Bytes(bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_as_people_write_them_are_parsed() {
        for (text, bytes) in [("64MiB", 64 << 20), ("2GiB", 2 << 30), ("1.5GB", 1_500_000_000), ("0", 0), (" 4 kb ", 4000)] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1 parsec", "1e400GB", "999999999TiB", "1.2.3"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_print_with_three_significant_digits() {
        for (bytes, text) in [(0, "0 B"), (999, "999 B"), (1000, "0.98 KiB"), (1 << 20, "1.00 MiB"), (13_000_000, "12.4 MiB")] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
