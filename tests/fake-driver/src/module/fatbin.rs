//! Fatbinaries: a header, then cubins and PTX texts, each with a header of its own and perhaps compressed.

use super::image::{self, Bytes, Image};

/// First word of a fatbinary.
pub(crate) const MAGIC: u32 = 0xba55_ed50;
/// First word of the wrapper that compilers leave in a program: magic, version, pointer to the fatbinary.
pub(crate) const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// Length of the outer header.
pub(crate) const HEADER_BYTES: u64 = 16;

/// The length of the whole, given its header.
pub(crate) fn length(header: &[u8]) -> Option<u64> {
    let header = Bytes(header);
    header.u64(8)?.checked_add(u64::from(header.u16(6)?))
}

/// Merges what the members tell. The driver takes one of them, so the largest is what becomes code.
pub(crate) fn parse(bytes: &[u8]) -> Option<Image> {
    let whole = Bytes(bytes);
    let end = length(bytes)?.min(bytes.len() as u64);
    let mut at = u64::from(whole.u16(6)?);
    let mut code_bytes = 0;
    let (mut compiled, mut texts) = (Vec::new(), Vec::new());
    while at + 64 <= end {
        let (header, padded) = (u64::from(whole.u32(at + 4)?), whole.u64(at + 8)?);
        let (packed, unpacked) = (u64::from(whole.u32(at + 16)?), whole.u64(at + 56)?);
        let body = whole.part(at + header, padded)?;
        code_bytes = code_bytes.max(if packed > 0 { unpacked } else { padded });
        if packed == 0 && body.starts_with(b"\x7fELF") {
            compiled.extend(image::parse(body));
        } else if packed == 0 {
            // Texts are padded with NULs.
            let length = body.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            texts.extend(image::parse(&body[..length]));
        }
        if header + padded == 0 {
            return None;
        }
        at += header + padded;
    }
    // All members hold the same kernels, so that one that can be read speaks for the others.
    let mut parsed = Image { open: compiled.is_empty() && texts.is_empty(), code_bytes, ..Image::default() };
    for member in compiled.into_iter().chain(texts) {
        for (name, facts) in member.kernels {
            parsed.kernels.entry(name).or_insert(facts);
        }
        for (name, facts) in member.globals {
            // Only texts tell which variables are managed.
            parsed.globals.entry(name).or_insert(facts).managed |= facts.managed;
        }
    }
    Some(parsed)
}
