//! Sizes and durations as people write them.

/// Longest duration: a call or a kernel of a day is a mistake.
const DURATION_NS_MAX: u64 = 86_400 * 1_000_000_000;

/// `200us`, `1.5ms`, `2s`, `500ns` or a bare `0` in nanoseconds.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_duration_ns(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let text = text.trim();
    if text == "0" {
        return Ok(0);
    }
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (Ok(number), Some((_, scale))) = (number.parse::<f64>(), UNITS.iter().find(|known| known.0 == unit)) else {
        return Err(format!("{text:?} is not a duration (a number and ns, us, ms or s)"));
    };
    let duration = (number * scale).round() as u64; // Not negative; too large a number saturates.
    if duration > DURATION_NS_MAX { Err(format!("{text:?} is longer than a day")) } else { Ok(duration) }
}

/// `300MiB`, `4GiB`, `4g`, `1GB` or a number of bytes.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let bytes = number.parse::<u64>().ok().zip(unit_bytes(unit.trim_start()));
    let bytes = bytes.and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("{text:?} is not a size"))
}

/// As everywhere in this project: powers of 1000 only for kB, MB, GB and TB.
fn unit_bytes(unit: &str) -> Option<u64> {
    let decimal = |power: u32| Some(1000_u64.pow(power));
    let binary = |power: u32| Some(1024_u64.pow(power));
    match unit {
        "" | "B" => Some(1),
        "kB" => decimal(1),
        "MB" => decimal(2),
        "GB" => decimal(3),
        "TB" => decimal(4),
        "k" | "K" | "Ki" | "KiB" => binary(1),
        "m" | "M" | "Mi" | "MiB" => binary(2),
        "g" | "G" | "Gi" | "GiB" => binary(3),
        "t" | "T" | "Ti" | "TiB" => binary(4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        let rows = [("200us", 200_000), ("1.5ms", 1_500_000), ("2s", 2_000_000_000), ("7ns", 7), ("0", 0), ("0us", 0)];
        for (text, duration) in rows {
            assert_eq!(parse_duration_ns(text), Ok(duration), "{text}");
        }
        for wrong in ["", "200", "us", "-1us", "1.2.3us", "1m", "2d", "90000s", "infs", "1e3us", "nan"] {
            assert!(parse_duration_ns(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_know_both_kinds_of_units() {
        let rows = [("300MiB", 300 << 20), ("4g", 4 << 30), ("1GB", 1_000_000_000), ("77", 77), ("0", 0)];
        for (text, size) in rows {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for wrong in ["", "MiB", "-1", "1.5GiB", "4gb", "99999999999GiB", "1 GiB GiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
