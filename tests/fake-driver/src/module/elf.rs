//! Cubins: 64-bit ELF files whose kernels are sections `.text.NAME`.

use super::image::{Bytes, GlobalFacts, Image, KernelFacts};
use std::collections::HashSet;

const SECTION_NOBITS: u32 = 8;
const SECTION_SYMBOLS: u32 = 2;
const SYMBOL_OBJECT: u8 = 1;
const SYMBOL_BYTES: u64 = 24;
/// The format of records of `.nv.info` whose value is a length, with so many bytes behind it.
const SIZED: u8 = 4;
/// Length of the file header; enough to find the section table.
pub(crate) const HEADER_BYTES: u64 = 64;

struct Section<'a> {
    name: &'a str,
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
}

/// Where the section table lies: offset, entry size, entries.
fn table(header: Bytes<'_>) -> Option<(u64, u64, u64)> {
    (header.0.get(4) == Some(&2)).then_some(())?;
    Some((header.u64(0x28)?, u64::from(header.u16(0x3a)?), u64::from(header.u16(0x3c)?)))
}

/// How many bytes have to be readable to see the whole section table.
pub(crate) fn table_end(header: &[u8]) -> Option<u64> {
    let (offset, entry, count) = table(Bytes(header))?;
    offset.checked_add(entry * count)
}

/// The length of the file, given everything up to the end of its section table.
pub(crate) fn length(start: &[u8]) -> Option<u64> {
    let bytes = Bytes(start);
    let (offset, entry, count) = table(bytes)?;
    let mut end = offset + entry * count;
    for index in 0..count {
        let at = offset + index * entry;
        if bytes.u32(at + 4)? != SECTION_NOBITS {
            end = end.max(bytes.u64(at + 0x18)?.checked_add(bytes.u64(at + 0x20)?)?);
        }
    }
    Some(end)
}

fn sections(bytes: Bytes<'_>) -> Option<Vec<Section<'_>>> {
    let (offset, entry, count) = table(bytes)?;
    let names_at = bytes.u64(offset + u64::from(bytes.u16(0x3e)?) * entry + 0x18)?;
    (0..count)
        .map(|index| {
            let at = offset + index * entry;
            Some(Section {
                name: bytes.text(names_at + u64::from(bytes.u32(at)?))?,
                kind: bytes.u32(at + 4)?,
                offset: bytes.u64(at + 0x18)?,
                size: bytes.u64(at + 0x20)?,
                link: bytes.u32(at + 0x28)?,
                info: bytes.u32(at + 0x2c)?,
            })
        })
        .collect()
}

/// Reads kernels, their parameters and the variables.
pub(crate) fn parse(image: &[u8]) -> Option<Image> {
    let bytes = Bytes(image);
    let sections = sections(bytes)?;
    let mut parsed = Image { code_bytes: image.len() as u64, ..Image::default() };
    for section in &sections {
        if let Some(name) = section.name.strip_prefix(".text.") {
            // The upper byte of the section's info is the number of registers.
            let registers = section.info >> 24;
            let facts = KernelFacts { registers: registers.clamp(1, 255), ..KernelFacts::default() };
            parsed.kernels.insert(name.to_owned(), facts);
        }
    }
    for section in &sections {
        if let Some(facts) = section.name.strip_prefix(".nv.shared.").and_then(|name| parsed.kernels.get_mut(name)) {
            facts.shared_bytes = u32::try_from(section.size).unwrap_or(u32::MAX);
        }
        if let Some(facts) = section.name.strip_prefix(".nv.info.").and_then(|name| parsed.kernels.get_mut(name)) {
            kernel_information(Bytes(bytes.part(section.offset, section.size)?), facts);
        }
        if section.name == ".nv.info" {
            frames(bytes, section, &sections, &mut parsed);
        }
        if section.kind == SECTION_SYMBOLS {
            variables(bytes, section, &sections, &mut parsed);
        }
    }
    // Device functions that are no kernels have a text section too, but none for parameters.
    let described = |prefix| sections.iter().filter_map(move |section| section.name.strip_prefix(prefix));
    let kernels: HashSet<&str> = described(".nv.constant0.").chain(described(".nv.info.")).collect();
    parsed.kernels.retain(|name, _| kernels.contains(name.as_str()));
    Some(parsed)
}

/// Records of `.nv.info`, of which those matter that tell a function's local memory: its symbol's number and bytes.
fn frames(bytes: Bytes<'_>, section: &Section<'_>, sections: &[Section<'_>], parsed: &mut Image) {
    const FRAME_BYTES: [u8; 2] = [SIZED, 0x11];
    let Some(symbols) = sections.iter().find(|symbols| symbols.kind == SECTION_SYMBOLS) else { return };
    let Some(names) = sections.get(symbols.link as usize) else { return };
    let Some(records) = bytes.part(section.offset, section.size).map(Bytes) else { return };
    let mut at = 0;
    while let (Some(head), Some(value)) = (records.part(at, 2), records.u16(at + 2)) {
        if head == FRAME_BYTES
            && let (Some(symbol), Some(local_bytes)) = (records.u32(at + 4), records.u32(at + 8))
            && let Some(name) = bytes.u32(symbols.offset + u64::from(symbol) * SYMBOL_BYTES)
            && let Some(name) = bytes.text(names.offset + u64::from(name))
            && let Some(facts) = parsed.kernels.get_mut(name)
        {
            facts.local_bytes = local_bytes;
        }
        at += 4 + if head[0] == SIZED { u64::from(value) } else { 0 };
    }
}

/// Records of `.nv.info.KERNEL`: format, attribute, then a 16-bit value or a length and that many bytes.
fn kernel_information(records: Bytes<'_>, facts: &mut KernelFacts) {
    const MAX_THREADS: u8 = 0x05;
    const PARAMETER: u8 = 0x17;
    const PARAMETER_BYTES: u8 = 0x19;
    let mut parameters: Vec<(u16, usize, usize)> = Vec::new();
    let mut has_some = false;
    let mut at = 0;
    while let (Some(head), Some(value)) = (records.part(at, 2), records.u16(at + 2)) {
        let (format, attribute) = (head[0], head[1]);
        let body = at + 4;
        match attribute {
            MAX_THREADS if format == SIZED => {
                let dims = [0, 4, 8].map(|offset| records.u32(body + offset).unwrap_or(1).max(1));
                facts.max_threads = dims[0].saturating_mul(dims[1]).saturating_mul(dims[2]).min(1024);
            }
            PARAMETER if format == SIZED => {
                if let (Some(ordinal), Some(offset), Some(bits)) =
                    (records.u16(body + 4), records.u16(body + 6), records.u32(body + 8))
                {
                    parameters.push((ordinal, usize::from(offset), (bits >> 18) as usize));
                }
            }
            PARAMETER_BYTES => has_some = true,
            _ => {}
        }
        at = body + if format == SIZED { u64::from(value) } else { 0 };
    }
    // Without the parameters' size there are none; with it they may be listed in a form unknown here.
    if !has_some || !parameters.is_empty() {
        parameters.sort_unstable();
        facts.parameters = Some(parameters.into_iter().map(|(_, offset, size)| (offset, size)).collect());
    }
}

fn variables(bytes: Bytes<'_>, table: &Section<'_>, sections: &[Section<'_>], parsed: &mut Image) {
    let Some(names_at) = sections.get(table.link as usize).map(|names| names.offset) else { return };
    for index in 0..table.size / SYMBOL_BYTES {
        let at = table.offset + index * SYMBOL_BYTES;
        let (Some(name), Some(kind), Some(place), Some(size)) =
            (bytes.u32(at), bytes.part(at + 4, 1), bytes.u16(at + 6), bytes.u64(at + 16))
        else {
            return;
        };
        let holder = sections.get(usize::from(place)).map_or("", |section| section.name);
        let stored = holder.starts_with(".nv.global") || holder.starts_with(".nv.constant");
        if kind[0] & 15 == SYMBOL_OBJECT
            && stored
            && size > 0
            && let Some(name) = bytes.text(names_at + u64::from(name)).filter(|name| !name.is_empty())
        {
            parsed.globals.insert(name.to_owned(), GlobalFacts { bytes: size, managed: false });
        }
    }
}
