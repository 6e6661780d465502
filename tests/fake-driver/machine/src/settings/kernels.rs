//! How long kernels take: `FAKE_CUDA_KERNELS`, else what a function's name says, else ten microseconds.
//!
//! `NAME=200us` is always the same, `NAME=lognormal(200us,0.8)` varies, and `NAME=meet(4,50us)` is a part of a collective:
//! it begins, has the device until the kernels of that name have begun in four contexts, and then takes 50 us. The names
//! `spin_200us` and `ring_meet4_50us` say the same without a rule.

use super::{SettingError, parse_duration_ns, text};
use crate::{RANKS_MAX, Work};

/// What a kernel takes of which nothing is known.
const DEFAULT_NS: u64 = 10_000;
/// Widest lognormal: beyond it single kernels take thousands of times the median.
const SIGMA_MAX: f64 = 4.0;

/// How long the kernels of one function take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum KernelTime {
    /// Always the same.
    Fixed {
        /// The duration.
        duration_ns: u64,
    },
    /// Spread as kernels of real programs are.
    Lognormal {
        /// Half of the launches take less.
        median_ns: u64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// From the function's name, so that functions differ.
        seed: u64,
    },
    /// Goes on when as many contexts have come to theirs.
    Meeting {
        /// How many contexts meet.
        ranks: u32,
        /// What it takes from then on.
        duration_ns: u64,
        /// From the function's name: those of one name meet.
        key: u64,
    },
}

impl KernelTime {
    /// What the launch with this number takes; the same in every run.
    pub fn duration_ns(&self, launch: u64) -> u64 {
        match *self {
            Self::Fixed { duration_ns } | Self::Meeting { duration_ns, .. } => duration_ns,
            Self::Lognormal { median_ns, sigma, seed } => {
                (median_ns as f64 * (sigma * normal(seed ^ launch.wrapping_mul(0x9e37_79b9_7f4a_7c15))).exp()) as u64
            }
        }
    }

    /// What the launch with this number has the device do.
    pub fn work(&self, launch: u64) -> Work {
        match *self {
            Self::Meeting { ranks, duration_ns, key } => Work::Meeting { key, ranks, duration_ns },
            _ => Work::Time(self.duration_ns(launch)),
        }
    }

    /// The same for functions of that name.
    fn named(self, function: &str) -> Self {
        match self {
            Self::Fixed { .. } => self,
            Self::Lognormal { median_ns, sigma, .. } => Self::Lognormal { median_ns, sigma, seed: seed_of(function) },
            Self::Meeting { ranks, duration_ns, .. } => Self::Meeting { ranks, duration_ns, key: seed_of(function) },
        }
    }
}

/// The rules of `FAKE_CUDA_KERNELS`.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Kernels {
    rules: Vec<(String, KernelTime)>,
}

impl Kernels {
    /// The rules of the environment.
    ///
    /// # Errors
    /// A rule that can't be followed.
    pub fn from_environment() -> Result<Self, SettingError> {
        text("FAKE_CUDA_KERNELS")?.map_or(Ok(Self::default()), |value| Self::parse(&value))
    }

    /// Rules such as `name=200us,other=lognormal(200us,0.8),gemm*=1ms,*=10us`.
    ///
    /// # Errors
    /// A rule that can't be followed.
    pub fn parse(value: &str) -> Result<Self, SettingError> {
        let wrong = |why| SettingError {
            variable: "FAKE_CUDA_KERNELS",
            value: value.to_owned(),
            why,
            right: "NAME=DURATION, NAME=lognormal(MEDIAN,SIGMA) or NAME=meet(RANKS,DURATION) is right, such as gemm*=200us,*=lognormal(50us,0.8)",
        };
        let mut rules = Vec::new();
        for rule in split_rules(value) {
            let (name, time) = rule.split_once('=').ok_or_else(|| wrong(format!("{rule:?} has no =")))?;
            let name = name.trim();
            if name.is_empty() {
                return Err(wrong(format!("{rule:?} names no function")));
            }
            rules.push((name.to_owned(), parse_time(time.trim()).map_err(wrong)?));
        }
        Ok(Self { rules })
    }

    /// How long the kernels of `function` take: its own rule, the first pattern that fits, or its name.
    pub fn time_of(&self, function: &str) -> KernelTime {
        let plain = plain_name(function);
        let named = |name: &str| name == function || name == plain;
        let fits = |name: &str| matches(name, function) || matches(name, plain);
        let exact = self.rules.iter().find(|(name, _)| named(name));
        match exact.or_else(|| self.rules.iter().find(|(name, _)| fits(name))) {
            Some((_, time)) => time.named(function),
            None => {
                let told = told_by_name(plain).unwrap_or(KernelTime::Fixed { duration_ns: DEFAULT_NS });
                told.named(function)
            }
        }
    }

    /// What one launch of `function` takes.
    pub fn duration_ns(&self, function: &str, launch: u64) -> u64 {
        self.time_of(function).duration_ns(launch)
    }
}

/// Rules are separated by commas; those within parentheses belong to the rule.
fn split_rules(value: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let at_comma = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    value.split(at_comma).map(str::trim).collect()
}

fn parse_time(text: &str) -> Result<KernelTime, String> {
    if let Some(inner) = text.strip_prefix("meet(").and_then(|rest| rest.strip_suffix(')')) {
        let (ranks, time) = inner.split_once(',').ok_or_else(|| format!("{text:?} needs ranks and a duration"))?;
        let ranks = parse_ranks(ranks.trim()).ok_or_else(|| format!("{text:?} is for 1 to {RANKS_MAX} ranks"))?;
        return Ok(KernelTime::Meeting { ranks, duration_ns: parse_duration_ns(time)?, key: 0 });
    }
    let Some(inner) = text.strip_prefix("lognormal(").and_then(|rest| rest.strip_suffix(')')) else {
        return parse_duration_ns(text).map(|duration_ns| KernelTime::Fixed { duration_ns });
    };
    let (median, sigma) = inner.split_once(',').ok_or_else(|| format!("{text:?} needs a median and a sigma"))?;
    let sigma = sigma.trim().parse::<f64>().ok().filter(|sigma| (0.0..=SIGMA_MAX).contains(sigma));
    let sigma = sigma.ok_or_else(|| format!("the sigma of {text:?} is not a number from 0 to {SIGMA_MAX}"))?;
    Ok(KernelTime::Lognormal { median_ns: parse_duration_ns(median)?, sigma, seed: 0 })
}

fn parse_ranks(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|ranks| plain && (1..=RANKS_MAX as u32).contains(ranks))
}

/// `spin_200us` takes 200 microseconds, `step_3ms` three milliseconds, `meet4_50us` 50 once four have met.
fn told_by_name(function: &str) -> Option<KernelTime> {
    let (before, last) = function.rsplit_once('_')?;
    let digits = last.strip_suffix("us").or_else(|| last.strip_suffix("ms"))?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let duration_ns = plain.then(|| parse_duration_ns(last).ok())??;
    let word = before.rsplit('_').next().unwrap_or(before);
    Some(match word.strip_prefix("meet").and_then(parse_ranks) {
        Some(ranks) => KernelTime::Meeting { ranks, duration_ns, key: 0 },
        None => KernelTime::Fixed { duration_ns },
    })
}

/// The function's own name within a C++ symbol such as `_Z10spin_200usPf`.
fn plain_name(function: &str) -> &str {
    let own = || {
        let rest = function.strip_prefix("_Z")?;
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let length = rest[..digits].parse::<usize>().ok()?;
        rest.get(digits..digits.checked_add(length)?)
    };
    own().unwrap_or(function)
}

/// True when `name` fits a pattern, in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

fn seed_of(function: &str) -> u64 {
    function
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// A standard normal variate that depends on the seed only.
fn normal(seed: u64) -> f64 {
    let uniform = |salt: u64| (stir(seed.wrapping_add(salt)) >> 11) as f64 / (1_u64 << 53) as f64;
    let radius = (-2.0 * (1.0 - uniform(1)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(0x5851_f42d_4c95_7f2d)).cos()
}

/// All bits of the result depend on all bits of `x`.
fn stir(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_durations() {
        let kernels = Kernels::default();
        let rows = [
            ("spin_200us", 200_000),
            ("spin_0us", 0),
            ("a_b_3ms", 3_000_000),
            ("_Z10spin_200usPfi", 200_000),
            ("spin", 10_000),
            ("spin_us", 10_000),
            ("spin_5s", 10_000),
            ("spin200us", 10_000),
            ("", 10_000),
        ];
        for (function, duration) in rows {
            assert_eq!(kernels.duration_ns(function, 7), duration, "{function}");
        }
    }

    #[test]
    fn the_own_rule_goes_before_a_pattern_and_a_pattern_before_the_name() {
        let kernels = Kernels::parse("*=1us,gemm_*_nt=2us,spin_200us=3us").unwrap();
        assert_eq!(kernels.duration_ns("spin_200us", 0), 3_000);
        assert_eq!(kernels.duration_ns("_Z10spin_200usv", 0), 3_000);
        assert_eq!(kernels.duration_ns("gemm_32_nt", 0), 1_000);
        assert_eq!(kernels.duration_ns("spin_9ms", 0), 1_000);
        let kernels = Kernels::parse("gemm_*_nt=2us").unwrap();
        assert_eq!(kernels.duration_ns("gemm_32_nt", 0), 2_000);
        assert_eq!(kernels.duration_ns("gemm_32_nn", 0), 10_000);
    }

    #[test]
    fn a_lognormal_has_its_median_and_repeats_itself() {
        let kernels = Kernels::parse("a=lognormal(200us, 0.8), *=1us").unwrap();
        let mut drawn: Vec<u64> = (0..10_001).map(|launch| kernels.duration_ns("a", launch)).collect();
        assert_eq!(drawn, (0..10_001).map(|launch| kernels.duration_ns("a", launch)).collect::<Vec<_>>());
        drawn.sort_unstable();
        let median = drawn[5_000];
        assert!((190_000..210_000).contains(&median), "{median}");
        let above = drawn[8_413] as f64 / median as f64; // One sigma above the median.
        assert!((above.ln() - 0.8).abs() < 0.05, "{above}");
    }

    #[test]
    fn meetings_are_of_one_name() {
        let kernels = Kernels::parse("reduce*=meet(2, 1ms)").unwrap();
        let met = |function: &str| match kernels.time_of(function).work(3) {
            Work::Meeting { key, ranks, duration_ns } => Some((key, ranks, duration_ns)),
            Work::Time(_) => None,
        };
        let (key, ranks, duration_ns) = met("reduce_a").unwrap();
        assert_eq!((ranks, duration_ns), (2, 1_000_000));
        assert_ne!(met("reduce_b").unwrap().0, key);
        for name in ["ring_meet4_50us", "meet4_50us"] {
            let (_, ranks, duration_ns) = met(name).unwrap();
            assert_eq!((ranks, duration_ns), (4, 50_000), "{name}");
        }
        for name in ["meet_50us", "meet4", "meet0_50us", "meet65_50us", "meet+4_50us", "spin_50us"] {
            assert_eq!(met(name), None, "{name}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for wrong in [
            "a",
            "=1us",
            "a=1",
            "a=lognormal(1us)",
            "a=lognormal(1us,9)",
            "a=lognormal(1us,x)",
            "a=1us,,b=1us",
            "a=meet(4)",
            "a=meet(0,1us)",
            "a=meet(99,1us)",
            "a=meet(4,x)",
        ] {
            let message = Kernels::parse(wrong).unwrap_err().to_string();
            assert!(message.contains("FAKE_CUDA_KERNELS") && message.contains("lognormal(MEDIAN,SIGMA)"), "{message}");
        }
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name) in
            [("*", ""), ("a*", "abc"), ("*c", "abc"), ("a*c", "ac"), ("*b*", "abc"), ("a*b*c", "a-b-b-c")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("a*", "ba"), ("ab*ba", "aba"), ("*x*", "abc"), ("a*b", "acbc")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
