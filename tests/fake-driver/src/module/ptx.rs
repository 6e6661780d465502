//! PTX text: `.entry` and its parameters, and the variables of the module.

use super::image::{GlobalFacts, Image, KernelFacts};
use std::iter::Peekable;

/// Reads a PTX text; `None` without a `.version` line, which every PTX text must have.
pub(crate) fn parse(text: &str) -> Option<Image> {
    let mut parsed = Image { code_bytes: text.len() as u64, ..Image::default() };
    let mut words = Words { rest: text }.peekable();
    let mut depth = 0u32;
    let mut versioned = false;
    let mut external = false;
    while let Some(word) = words.next() {
        match word {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            ";" => external = false,
            _ if depth > 0 => {}
            ".version" => versioned = true,
            ".extern" => external = true,
            ".entry" => {
                let (name, facts) = entry(&mut words)?;
                parsed.kernels.insert(name.to_owned(), facts);
            }
            ".global" | ".const" => {
                if let Some((name, facts)) = variable(&mut words).filter(|_| !external) {
                    parsed.globals.insert(name.to_owned(), facts);
                }
            }
            _ => {}
        }
    }
    versioned.then_some(parsed)
}

/// `NAME ( parameters ) directives { body }`, or a declaration that ends with `;`.
fn entry<'a>(words: &mut Peekable<Words<'a>>) -> Option<(&'a str, KernelFacts)> {
    let name = words.next()?;
    let mut facts = KernelFacts { parameters: Some(Vec::new()), ..KernelFacts::default() };
    if words.peek() == Some(&"(") {
        words.next();
        facts.parameters = parameters(words);
    }
    while let Some(word) = words.next() {
        match word {
            ".maxntid" | ".reqntid" => {
                let mut product = number(words.next()?)?;
                while words.peek() == Some(&",") {
                    words.next();
                    product = product.saturating_mul(number(words.next()?)?);
                }
                facts.max_threads = product.min(1024) as u32;
            }
            ";" => break,
            "{" => {
                body(words, &mut facts);
                break;
            }
            _ => {}
        }
    }
    Some((name, facts))
}

/// Adds up `.shared` and `.local` variables until the brace that closes the body.
fn body(words: &mut Peekable<Words<'_>>, facts: &mut KernelFacts) {
    let mut depth = 1u32;
    while let Some(word) = words.next() {
        match word {
            "{" => depth += 1,
            "}" if depth == 1 => return,
            "}" => depth -= 1,
            ".shared" | ".local" => {
                let bytes = variable(words).map_or(0, |(_, variable)| u32::try_from(variable.bytes).unwrap_or(0));
                let total = if word == ".shared" { &mut facts.shared_bytes } else { &mut facts.local_bytes };
                *total = total.saturating_add(bytes);
            }
            _ => {}
        }
    }
}

/// Offsets and sizes of the parameters up to `)`; `None` for a type this reader doesn't know.
fn parameters(words: &mut Peekable<Words<'_>>) -> Option<Vec<(usize, usize)>> {
    let mut list = Vec::new();
    let mut end = 0usize;
    while let Some(word) = words.next() {
        match word {
            ")" => return Some(list),
            ".param" => {
                let declared = declaration(words)?;
                let at = end.next_multiple_of(usize::try_from(declared.align).ok()?.max(1));
                let bytes = usize::try_from(declared.bytes).ok()?;
                list.push((at, bytes));
                end = at.checked_add(bytes)?;
            }
            _ => {}
        }
    }
    None
}

fn variable<'a>(words: &mut Peekable<Words<'a>>) -> Option<(&'a str, GlobalFacts)> {
    let declared = declaration(words)?;
    Some((declared.name, GlobalFacts { bytes: declared.bytes, managed: declared.managed }))
}

struct Declaration<'a> {
    name: &'a str,
    bytes: u64,
    align: u64,
    managed: bool,
}

/// `.align N .type .ptr .space name[extent]...`, in any order before the name.
fn declaration<'a>(words: &mut Peekable<Words<'a>>) -> Option<Declaration<'a>> {
    let (mut element, mut lanes, mut align, mut managed, mut pointer) = (0, 1, None, false, false);
    let name = loop {
        match words.next()? {
            // `.ptr .align N` speaks of what the parameter points to.
            ".align" if pointer => drop(words.next()),
            ".align" => align = number(words.next()?),
            ".ptr" => pointer = true,
            ".managed" => managed = true,
            "(" | ")" | ".attribute" | "," => {}
            ".v2" => lanes = 2,
            ".v4" => lanes = 4,
            word if word.starts_with('.') => element = element_bytes(word).unwrap_or(element),
            word => break word,
        }
    };
    let element = element * lanes;
    let mut bytes = element;
    while words.peek() == Some(&"[") {
        words.next();
        if words.peek() != Some(&"]") {
            bytes = number(words.next()?)?.checked_mul(bytes)?;
        }
        while words.next()? != "]" {}
    }
    Some(Declaration { name, bytes, align: align.unwrap_or(element), managed })
}

fn element_bytes(kind: &str) -> Option<u64> {
    let bits: u64 = match kind {
        ".texref" | ".samplerref" | ".surfref" => 64,
        ".pred" => 8,
        ".f16x2" | ".bf16x2" => 32,
        ".bf16" => 16,
        _ => kind.strip_prefix('.')?.strip_prefix(['b', 'u', 's', 'f'])?.parse().ok()?,
    };
    Some(bits / 8)
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Words of a PTX text: names and directives, numbers, single signs; no comments, no strings.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            self.rest = self.rest.trim_start();
            let skip = if self.rest.starts_with("//") {
                self.rest.find('\n')
            } else if self.rest.starts_with("/*") {
                self.rest.find("*/").map(|end| end + 2)
            } else if let Some(quoted) = self.rest.strip_prefix('"') {
                quoted.find('"').map(|end| end + 2)
            } else {
                break;
            };
            self.rest = &self.rest[skip.unwrap_or(self.rest.len())..];
        }
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '%');
        let first = self.rest.chars().next()?;
        let start = first.len_utf8();
        let end = if part(first) || first == '.' {
            self.rest[start..].find(|c| !part(c)).map_or(self.rest.len(), |end| start + end)
        } else {
            start
        };
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(word)
    }
}
