//! What this driver lacks, or tells wrong: `FAKE_CUDA_LACKS`, words separated by commas.

use super::{SettingError, text};
use std::sync::OnceLock;

/// Something that some drivers lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// `stream-priorities`: all streams have priority 0, as on devices without such.
    StreamPriorities,
    /// `processes`: NVML lists no process, as in a container that shares no PID namespace.
    Processes,
    /// `samples`: NVML's question about processes' utilisation ends with `NOT_FOUND`.
    Samples,
    /// `sample-count`: it succeeds and gives no sample.
    SampleCount,
    /// `sane-samples`: it gives samples far above 100 per cent.
    SaneSamples,
    /// `parent-access`: NVML refuses what is asked of a device whose MIG mode is on, as in a container that was given
    /// one of its instances.
    ParentAccess,
}

const WORDS: &[(&str, Lack)] = &[
    ("stream-priorities", Lack::StreamPriorities),
    ("processes", Lack::Processes),
    ("samples", Lack::Samples),
    ("sample-count", Lack::SampleCount),
    ("sane-samples", Lack::SaneSamples),
    ("parent-access", Lack::ParentAccess),
];

/// True when the environment says so. A mistake in the setting is reported by [`super::validate`].
pub fn lacks(what: Lack) -> bool {
    static SET: OnceLock<Vec<Lack>> = OnceLock::new();
    SET.get_or_init(|| from_environment().unwrap_or_default()).contains(&what)
}

pub(super) fn validate() -> Result<(), SettingError> {
    from_environment().map(drop)
}

fn from_environment() -> Result<Vec<Lack>, SettingError> {
    text("FAKE_CUDA_LACKS")?.map_or(Ok(Vec::new()), |value| parse(&value))
}

fn parse(value: &str) -> Result<Vec<Lack>, SettingError> {
    let known = |word: &str| WORDS.iter().find(|(name, _)| *name == word).map(|(_, lack)| *lack);
    let lack = |word: &str| {
        known(word.trim()).ok_or_else(|| SettingError {
            variable: "FAKE_CUDA_LACKS",
            value: value.to_owned(),
            why: format!("{word:?} is not known"),
            right: "some of stream-priorities, processes, samples, sample-count, sane-samples and parent-access is right",
        })
    };
    value.split(',').map(lack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_and_told() {
        assert_eq!(parse("processes, samples"), Ok(vec![Lack::Processes, Lack::Samples]));
        for (word, lack) in WORDS {
            let error = parse("x").unwrap_err();
            assert!(error.right.contains(word), "{word}");
            assert_eq!(parse(word), Ok(vec![*lack]));
        }
    }
}
