//! Calls that fail or take long on purpose: `FAKE_CUDA_FAIL` and `FAKE_CUDA_LATENCY`.

use super::{SettingError, parse_duration_ns, text};
use driver_api::{SYMBOLS, SymbolId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Which calls of a function fail.
#[derive(Debug)]
struct Failure {
    function: String,
    /// The number of the call, from 1 on; `None` means every call.
    call: Option<u64>,
    code: i32,
    calls: AtomicU64,
}

/// The rules of `FAKE_CUDA_FAIL`; calls are counted in each process.
#[derive(Debug, Default)]
pub struct Failures {
    rules: Vec<Failure>,
}

impl Failures {
    /// The rules of the environment.
    ///
    /// # Errors
    /// A rule that can't be followed.
    pub fn from_environment() -> Result<Self, SettingError> {
        text("FAKE_CUDA_FAIL")?.map_or(Ok(Self::default()), |value| Self::parse(&value))
    }

    /// Rules such as `cuMemAlloc_v2:3=2,cuLaunchKernel:*=719`.
    ///
    /// # Errors
    /// A rule that can't be followed.
    pub fn parse(value: &str) -> Result<Self, SettingError> {
        let wrong = |why| SettingError {
            variable: "FAKE_CUDA_FAIL",
            value: value.to_owned(),
            why,
            right: "FUNCTION:CALL=CODE is right, such as cuMemAlloc_v2:3=2 for the third call or cuLaunchKernel:*=719 for all",
        };
        let rules = value.split(',').map(|rule| Self::parse_rule(rule.trim()).map_err(wrong));
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }

    fn parse_rule(rule: &str) -> Result<Failure, String> {
        let (call, code) = rule.split_once('=').ok_or_else(|| format!("{rule:?} has no ="))?;
        let (function, number) = call.split_once(':').ok_or_else(|| format!("{rule:?} doesn't say which call"))?;
        let call = match number.trim() {
            "*" => None,
            digits => Some(
                digits
                    .parse()
                    .ok()
                    .filter(|call| *call > 0)
                    .ok_or_else(|| format!("{digits:?} is no number of a call (they count from 1)"))?,
            ),
        };
        let code =
            code.trim().parse().ok().filter(|code| *code > 0).ok_or_else(|| format!("{code:?} is no error code"))?;
        Ok(Failure { function: known(function)?, call, code, calls: AtomicU64::new(0) })
    }

    /// Counts a call of `function`; the code it is to fail with, if any.
    pub fn next(&self, function: &str) -> Option<i32> {
        let mut fails = None;
        for rule in self.rules.iter().filter(|rule| rule.function == function) {
            // Only a count: nothing else is ordered by it.
            let call = rule.calls.fetch_add(1, Ordering::Relaxed) + 1;
            if rule.call.is_none_or(|wanted| wanted == call) {
                fails = fails.or(Some(rule.code));
            }
        }
        fails
    }

    /// True when no rule is given.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// The rules of `FAKE_CUDA_LATENCY`.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    rules: Vec<(String, Duration)>,
}

impl Latencies {
    /// The rules of the environment.
    ///
    /// # Errors
    /// A rule that can't be followed.
    pub fn from_environment() -> Result<Self, SettingError> {
        text("FAKE_CUDA_LATENCY")?.map_or(Ok(Self::default()), |value| Self::parse(&value))
    }

    /// Rules such as `cuMemAlloc_v2=50us,cuMemFree_v2=1ms`.
    ///
    /// # Errors
    /// A rule that can't be followed.
    pub fn parse(value: &str) -> Result<Self, SettingError> {
        let wrong = |why| SettingError {
            variable: "FAKE_CUDA_LATENCY",
            value: value.to_owned(),
            why,
            right: "FUNCTION=DURATION is right, such as cuMemAlloc_v2=50us",
        };
        let rule = |rule: &str| {
            let (function, duration) = rule.split_once('=').ok_or_else(|| format!("{rule:?} has no ="))?;
            Ok((known(function)?, Duration::from_nanos(parse_duration_ns(duration)?)))
        };
        let rules = value.split(',').map(|text| rule(text.trim()).map_err(wrong));
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }

    /// The least that a call of `function` takes, if a rule says so.
    pub fn of(&self, function: &str) -> Option<Duration> {
        self.rules.iter().find(|(name, _)| name == function).map(|rule| rule.1)
    }

    /// True when no rule is given.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// The name of an exported function; others would never be called.
fn known(function: &str) -> Result<String, String> {
    let function = function.trim();
    if SymbolId::exported(function).is_some() {
        return Ok(function.to_owned());
    }
    let near = SYMBOLS.iter().find(|symbol| symbol.name.eq_ignore_ascii_case(function) || symbol.base == function);
    let hint = near.map(|symbol| format!(", did you mean {}?", symbol.name)).unwrap_or_default();
    Err(format!("the driver exports no {function:?}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_call_fails_and_no_other() {
        let failures = Failures::parse("cuMemAlloc_v2:3=2, cuLaunchKernel:*=719, cuMemAlloc_v2:1=999").unwrap();
        let answers: Vec<_> = (0..5).map(|_| failures.next("cuMemAlloc_v2")).collect();
        assert_eq!(answers, [Some(999), None, Some(2), None, None]);
        assert_eq!([failures.next("cuLaunchKernel"), failures.next("cuLaunchKernel")], [Some(719); 2]);
        assert_eq!(failures.next("cuMemFree_v2"), None);
    }

    #[test]
    fn the_first_of_two_rules_for_one_call_holds() {
        let failures = Failures::parse("nvmlInit_v2:*=9,nvmlInit_v2:1=999").unwrap();
        assert_eq!(failures.next("nvmlInit_v2"), Some(9));
    }

    #[test]
    fn mistakes_are_told() {
        let rows = [
            "cuMemAlloc_v2",
            "cuMemAlloc_v2=2",
            "cuMemAlloc_v2:0=2",
            "cuMemAlloc_v2:x=2",
            "cuMemAlloc_v2:1=0",
            "cuMemAlloc_v2:1=-1",
            "cuMemAlloc_v2:1=OOM",
            "cuNothing:1=2",
            "cuMemAlloc_v2:1=2,",
        ];
        for wrong in rows {
            let message = Failures::parse(wrong).unwrap_err().to_string();
            assert!(message.contains("FAKE_CUDA_FAIL") && message.contains("FUNCTION:CALL=CODE"), "{message}");
        }
        let message = Failures::parse("cumemalloc_v2:1=2").unwrap_err().to_string();
        assert!(message.contains("did you mean cuMemAlloc_v2?"), "{message}");
    }

    #[test]
    fn latencies_are_by_function() {
        let latencies = Latencies::parse("cuMemAlloc_v2=50us,nvmlInit_v2=1ms").unwrap();
        assert_eq!(latencies.of("cuMemAlloc_v2"), Some(Duration::from_micros(50)));
        assert_eq!(latencies.of("cuMemFree_v2"), None);
        for wrong in ["cuMemAlloc_v2", "cuMemAlloc_v2=50", "cuNothing=1us", "=1us"] {
            let message = Latencies::parse(wrong).unwrap_err().to_string();
            assert!(message.contains("FAKE_CUDA_LATENCY"), "{message}");
        }
    }
}
