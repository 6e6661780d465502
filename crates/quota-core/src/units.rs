//! Sizes and percentages: parsed once, whole, at the border.

use core::fmt;
use core::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bytes(pub u64);

/// A share of something, in hundredths of a percent; from 1 % to 100 %.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Percent(u32);

/// A memory quota as people write it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemorySize {
    /// So many bytes, whatever the device.
    Absolute(Bytes),
    /// A share of the device's memory.
    Share(Percent),
}

/// Why a size or a percentage was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnitError {
    /// Nothing was given.
    #[error("it is empty")]
    Empty,
    /// Not a plain decimal number followed by a unit.
    #[error("it is not a number with a unit")]
    Malformed,
    /// The unit is none of ours.
    #[error("the unit is unknown")]
    UnknownUnit,
    /// A fraction that does not come out in whole bytes.
    #[error("it is not a whole number of bytes")]
    Inexact,
    /// Beyond 2^64 bytes.
    #[error("it is too large")]
    TooLarge,
    /// A quota of nothing.
    #[error("zero is not a quota")]
    Zero,
    /// Below 1 % or above 100 %.
    #[error("a percentage lies between 1 and 100")]
    OutOfRange,
    /// More than two decimals.
    #[error("a percentage has at most two decimals")]
    TooFine,
}

/// What a size may look like; part of every message about one.
pub const SIZE_FORM: &str = "a size such as 4GiB, 4G, 4096MiB, 4GB (1000s) or 50%";
/// What a percentage may look like.
pub const PERCENT_FORM: &str = "a percentage from 1 to 100, such as 30, 30% or 12.5";

impl Bytes {
    /// The largest unit that shows the size with at most two decimals, for people: `1.50 GiB`.
    pub fn human(self) -> String {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut unit = 0;
        let mut scale = 1u64;
        while unit + 1 < UNITS.len() && self.0 >= scale.saturating_mul(1024) {
            unit += 1;
            scale *= 1024;
        }
        if self.0.is_multiple_of(scale) {
            format!("{} {}", self.0 / scale, UNITS[unit])
        } else {
            format!("{:.2} {}", self.0 as f64 / scale as f64, UNITS[unit])
        }
    }
}

impl fmt::Display for Bytes {
    /// Exact and readable by [`Bytes::from_str`]: the largest binary unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, scale) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 != 0 && self.0.is_multiple_of(scale) {
                return write!(f, "{}{unit}", self.0 / scale);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split_number(text)?;
        let scale = match unit {
            "" => 1,
            "k" | "K" | "Ki" | "KiB" => 1 << 10,
            "m" | "M" | "Mi" | "MiB" => 1 << 20,
            "g" | "G" | "Gi" | "GiB" => 1 << 30,
            "t" | "T" | "Ti" | "TiB" => 1 << 40,
            "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            _ => return Err(UnitError::UnknownUnit),
        };
        number.times(scale).map(Bytes)
    }
}

impl Percent {
    /// All of it.
    pub const ALL: Self = Self(10_000);

    /// From hundredths of a percent, 100 to 10,000.
    pub fn from_hundredths(hundredths: u32) -> Option<Self> {
        (100..=10_000).contains(&hundredths).then_some(Self(hundredths))
    }

    /// The same of a part of what was asked for, which may be smaller: 1 to 10,000.
    pub fn part(hundredths: u32) -> Option<Self> {
        (1..=10_000).contains(&hundredths).then_some(Self(hundredths))
    }

    /// True for a cap of so much that is one: less than all.
    pub fn binds(&self) -> bool {
        *self < Self::ALL
    }

    /// In hundredths of a percent.
    pub fn hundredths(self) -> u32 {
        self.0
    }

    /// This share of `whole`, rounded down.
    pub fn of(self, whole: Bytes) -> Bytes {
        let share = u128::from(whole.0) * u128::from(self.0) / 10_000;
        Bytes(u64::try_from(share).expect("a share is not above the whole"))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 100, self.0 % 100);
        match rest {
            0 => write!(f, "{whole}%"),
            _ if rest % 10 == 0 => write!(f, "{whole}.{}%", rest / 10),
            _ => write!(f, "{whole}.{rest:02}%"),
        }
    }
}

impl FromStr for Percent {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split_number(text)?;
        if !matches!(unit, "" | "%") {
            return Err(UnitError::UnknownUnit);
        }
        let hundredths = number.times(100).map_err(|error| match error {
            UnitError::Inexact => UnitError::TooFine,
            UnitError::TooLarge => UnitError::OutOfRange,
            other => other,
        })?;
        u32::try_from(hundredths).ok().and_then(Self::from_hundredths).ok_or(UnitError::OutOfRange)
    }
}

impl MemorySize {
    /// The bytes it means on a device of `total` bytes.
    pub fn on(self, total: Bytes) -> Bytes {
        match self {
            Self::Absolute(bytes) => bytes,
            Self::Share(percent) => percent.of(total),
        }
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute(bytes) => bytes.fmt(f),
            Self::Share(percent) => percent.fmt(f),
        }
    }
}

impl FromStr for MemorySize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.ends_with('%') {
            return text.parse().map(Self::Share);
        }
        match text.parse()? {
            Bytes(0) => Err(UnitError::Zero),
            bytes => Ok(Self::Absolute(bytes)),
        }
    }
}

/// A non-negative decimal number: `digits / 10^decimals`.
struct Decimal {
    digits: u128,
    decimals: u32,
}

impl Decimal {
    fn times(&self, scale: u64) -> Result<u64, UnitError> {
        let product = self.digits.checked_mul(u128::from(scale)).ok_or(UnitError::TooLarge)?;
        let divisor = 10u128.pow(self.decimals);
        if !product.is_multiple_of(divisor) {
            return Err(UnitError::Inexact);
        }
        u64::try_from(product / divisor).map_err(|_| UnitError::TooLarge)
    }
}

/// Splits `12.5GiB` into 12.5 and `GiB`.
fn split_number(text: &str) -> Result<(Decimal, &str), UnitError> {
    // More digits than this are no size anybody means, and 10^18 keeps every product within u128.
    const DIGITS_MAX: usize = 20;
    const DECIMALS_MAX: usize = 18;
    if text.is_empty() {
        return Err(UnitError::Empty);
    }
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return Err(UnitError::Malformed);
    }
    if whole.len() > DIGITS_MAX || fraction.len() > DECIMALS_MAX {
        return Err(UnitError::TooLarge);
    }
    let digits = format!("{whole}{fraction}").parse().map_err(|_| UnitError::TooLarge)?;
    Ok((Decimal { digits, decimals: fraction.len() as u32 }, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_mean_what_people_mean() {
        const G: u64 = 1 << 30;
        for (text, bytes) in [
            ("4GiB", 4 * G),
            ("4Gi", 4 * G),
            ("4G", 4 * G),
            ("4g", 4 * G),
            ("4GB", 4_000_000_000),
            ("4096MiB", 4 * G),
            ("4096m", 4 * G),
            ("1.5GiB", 3 * G / 2),
            ("0.5kB", 500),
            ("1024", 1024),
            ("16777215TiB", 16_777_215 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_and_says_why() {
        use UnitError as E;
        for (text, error) in [
            ("", E::Empty),
            ("12Q", E::UnknownUnit),
            ("-1", E::Malformed),
            ("1e30GiB", E::UnknownUnit),
            ("4 GiB", E::UnknownUnit),
            (" 4GiB", E::Malformed),
            ("4gib", E::UnknownUnit),
            ("4gb", E::UnknownUnit),
            ("1.", E::Malformed),
            (".5G", E::Malformed),
            ("1.2.3", E::Malformed),
            ("0.1GiB", E::Inexact),
            ("0.5", E::Inexact),
            ("99999999999999999999T", E::TooLarge),
            ("999999999999999999999", E::TooLarge),
            ("GiB", E::Malformed),
            ("unlimited", E::Malformed),
            ("４GiB", E::Malformed),
        ] {
            assert_eq!(text.parse::<Bytes>(), Err(error), "{text}");
        }
        assert_eq!("0".parse::<MemorySize>(), Err(E::Zero));
        assert_eq!("0%".parse::<MemorySize>(), Err(E::OutOfRange));
        assert_eq!("101%".parse::<MemorySize>(), Err(E::OutOfRange));
    }

    #[test]
    fn percentages_keep_two_decimals() {
        assert_eq!("30".parse::<Percent>(), Ok(Percent(3000)));
        assert_eq!("30%".parse::<Percent>(), Ok(Percent(3000)));
        assert_eq!("12.5".parse::<Percent>(), Ok(Percent(1250)));
        for bad in ["0", "0.5", "101", "100.01", "-1", "12.345", "3e1", "", "%", "99999999999"] {
            assert!(bad.parse::<Percent>().is_err(), "{bad}");
        }
        assert_eq!(Percent(1250).of(Bytes(80)), Bytes(10));
        assert_eq!(Percent::ALL.of(Bytes(u64::MAX)), Bytes(u64::MAX));
    }

    #[test]
    fn what_is_shown_reads_back() {
        for bytes in [0, 1, 512, 1 << 20, (1 << 30) + 1, 3 << 29, u64::MAX] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
        for hundredths in [100, 1250, 1205, 10_000] {
            let percent = Percent(hundredths);
            assert_eq!(percent.to_string().parse(), Ok(percent));
        }
        assert_eq!(Bytes(3 << 29).human(), "1.50 GiB");
        assert_eq!(Bytes(20 << 30).human(), "20 GiB");
    }
}
