//! The document's shape, as text: keys and where they may stand. Values are checked by the parent.

use super::DocumentError;
use core::fmt;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};

/// Keys that are understood and change nothing in this version.
pub(super) fn without_effect(raw: &RawDocument) -> Vec<String> {
    let mut keys = Vec::new();
    let mut note = |present: bool, key: &str| {
        if present {
            keys.push(key.to_owned());
        }
    };
    note(raw.listen.is_some(), "listen");
    keys
}

/// The longest message about a mistake.
const MESSAGE_BYTES_MAX: usize = 512;

pub(super) fn parse(text: &str) -> Result<RawDocument, DocumentError> {
    serde_saphyr::from_str(text).map_err(|error| {
        let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
        // A key in the text may have any signs in it.
        let message = crate::peer::clean_to(&message(error.without_snippet()), MESSAGE_BYTES_MAX);
        DocumentError::Text { line, column, message }
    })
}

/// One line for an error. The library shows the place in the text below its own.
fn message(error: &serde_saphyr::Error) -> String {
    if let serde_saphyr::Error::SerdeUnknownField { field, expected, .. } = error {
        return match near(field, expected) {
            Some(word) => format!("unknown key `{field}`; did you mean `{word}`?"),
            None => format!("unknown key `{field}`; the keys here are {}", expected.join(", ")),
        };
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or("it can't be read");
    line.rsplit_once(" at line ").map_or(line, |(message, _)| message).to_owned()
}

/// What was probably meant.
fn near<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |word: &&&str| strsim::damerau_levenshtein(unknown, word);
    known.iter().min_by_key(distance).filter(|word| distance(word) <= 1 + word.len() / 4).copied()
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDocument {
    pub(super) socket: Option<String>,
    pub(super) listen: Option<String>,
    pub(super) devices: Option<Vec<RawDevice>>,
    pub(super) scheduling: Option<RawScheduling>,
    pub(super) schedule: Option<Vec<RawVariant>>,
    pub(super) tenants: Option<Vec<RawTenant>>,
    pub(super) audit: Option<RawAudit>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDevice {
    pub(super) select: Option<Scalar>,
    pub(super) sharing: Option<String>,
    pub(super) memory_reserve: Option<Scalar>,
    pub(super) max_jobs: Option<Scalar>,
    pub(super) defaults: Option<RawDefaults>,
    pub(super) slices: Option<Scalar>,
    pub(super) oversubscribe: Option<Scalar>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDefaults {
    pub(super) memory: Option<Scalar>,
    pub(super) compute: Option<Scalar>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVariant {
    pub(super) name: Scalar,
    pub(super) from: Scalar,
    pub(super) to: Scalar,
    pub(super) days: Option<Scalar>,
    pub(super) devices: Vec<RawVariantDevice>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVariantDevice {
    pub(super) select: Option<Scalar>,
    pub(super) max_jobs: Option<Scalar>,
    pub(super) defaults: Option<RawDefaults>,
    pub(super) slices: Option<Scalar>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawScheduling {
    pub(super) policy: Option<Scalar>,
    pub(super) quantum: Option<Scalar>,
    pub(super) preemption: Option<bool>,
    pub(super) placement: Option<Scalar>,
    pub(super) aging: Option<Scalar>,
    pub(super) grace: Option<Scalar>,
    pub(super) interrupt: Option<Scalar>,
    pub(super) reclaim: Option<Scalar>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTenant {
    pub(super) name: Scalar,
    pub(super) memory: Option<Scalar>,
    pub(super) compute: Option<RawCompute>,
    pub(super) priority: Option<Scalar>,
    pub(super) isolation: Option<String>,
    pub(super) share_with: Option<Vec<Scalar>>,
    pub(super) borrow: Option<bool>,
    pub(super) oversubscribe: Option<bool>,
    #[serde(rename = "match")]
    pub(super) matches: Option<RawMatch>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMatch {
    pub(super) cgroup: Option<String>,
    pub(super) uid: Option<u32>,
    pub(super) secret_file: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAudit {
    pub(super) path: Option<String>,
    pub(super) keep: Option<Scalar>,
}

/// A value as it is written, whether YAML takes it for text or for a number.
#[derive(Clone, Debug, Default)]
pub(super) struct Scalar(pub(super) String);

/// `25%`, or the parts by name.
pub(super) enum RawCompute {
    Limit(Scalar),
    Parts(ComputeParts),
}

#[derive(Clone, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ComputeParts {
    pub(super) limit: Option<Scalar>,
    pub(super) guarantee: Option<Scalar>,
    pub(super) weight: Option<Scalar>,
}

impl RawCompute {
    pub(super) fn parts(&self) -> ComputeParts {
        match self {
            Self::Limit(limit) => ComputeParts { limit: Some(limit.clone()), ..ComputeParts::default() },
            Self::Parts(parts) => parts.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a number")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar(text.to_owned()))
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Scalar, E> {
        Err(E::custom("YAML takes this word for true or false; put it in quotes"))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar(number.to_string()))
    }
}

impl<'de> Deserialize<'de> for RawCompute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = RawCompute;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a percentage, or limit, guarantee and weight")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawCompute, E> {
                ScalarVisitor.visit_str(text).map(RawCompute::Limit)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<RawCompute, E> {
                ScalarVisitor.visit_u64(number).map(RawCompute::Limit)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<RawCompute, E> {
                ScalarVisitor.visit_i64(number).map(RawCompute::Limit)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<RawCompute, E> {
                ScalarVisitor.visit_f64(number).map(RawCompute::Limit)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawCompute, A::Error> {
                ComputeParts::deserialize(MapAccessDeserializer::new(map)).map(RawCompute::Parts)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
