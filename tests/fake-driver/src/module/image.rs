//! What a program image holds: kernels and variables, as far as its format tells.
//!
//! Nothing is compiled or checked beyond that. An image whose names can't be read (a compressed
//! fatbinary) answers to any name; the others only to their own.

use super::{elf, fatbin, ptx};
use std::collections::BTreeMap;

/// How much memory a variable takes whose size the image doesn't tell.
pub(crate) const UNKNOWN_GLOBAL_BYTES: u64 = 64 << 10;

/// What is known of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelFacts {
    /// Offset and size of each parameter, where the image tells.
    pub(crate) parameters: Option<Vec<(usize, usize)>>,
    /// Registers of a thread.
    pub(crate) registers: u32,
    /// Static shared memory of a block.
    pub(crate) shared_bytes: u32,
    /// Local memory of a thread.
    pub(crate) local_bytes: u32,
    /// The largest block that the kernel was compiled for.
    pub(crate) max_threads: u32,
}

impl Default for KernelFacts {
    fn default() -> Self {
        Self { parameters: None, registers: 32, shared_bytes: 0, local_bytes: 0, max_threads: 1024 }
    }
}

/// What is known of one `__device__`, `__constant__` or `__managed__` variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GlobalFacts {
    /// Its size.
    pub(crate) bytes: u64,
    /// Whether it is managed memory.
    pub(crate) managed: bool,
}

/// A parsed image.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Kernels by name.
    pub(crate) kernels: BTreeMap<String, KernelFacts>,
    /// Variables by name.
    pub(crate) globals: BTreeMap<String, GlobalFacts>,
    /// Whether names that are not listed exist too, as the image can't be read.
    pub(crate) open: bool,
    /// How much of it becomes code on the device.
    pub(crate) code_bytes: u64,
}

/// The four kinds of image that the driver loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A cubin.
    Elf,
    /// A fatbinary: several cubins and PTX texts.
    Fatbin,
    /// PTX text.
    Ptx,
    /// A text that starts with `fake`: ours, for tests. It has every kernel and variable one asks for.
    Fake,
}

impl Format {
    /// Tells the format from the first bytes; up to eight are looked at.
    pub(crate) fn of(start: &[u8]) -> Option<Self> {
        if start.starts_with(b"\x7fELF") {
            Some(Self::Elf)
        } else if start.starts_with(&fatbin::MAGIC.to_le_bytes()) {
            Some(Self::Fatbin)
        } else if start.starts_with(b"fake") {
            Some(Self::Fake)
        } else if start.first().is_some_and(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
            Some(Self::Ptx)
        } else {
            None
        }
    }
}

/// Reads an image; `None` when it is none.
pub(crate) fn parse(bytes: &[u8]) -> Option<Image> {
    match Format::of(bytes)? {
        Format::Elf => elf::parse(bytes),
        Format::Fatbin => fatbin::parse(bytes),
        Format::Ptx => ptx::parse(std::str::from_utf8(bytes).ok()?),
        Format::Fake => Some(Image { open: true, code_bytes: bytes.len() as u64, ..Image::default() }),
    }
}

/// The little-endian numbers of a byte string, with every access checked.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// `length` bytes from `offset` on.
    pub(crate) fn part(self, offset: u64, length: u64) -> Option<&'a [u8]> {
        let start = usize::try_from(offset).ok()?;
        self.0.get(start..start.checked_add(usize::try_from(length).ok()?)?)
    }

    pub(crate) fn u16(self, offset: u64) -> Option<u16> {
        Some(u16::from_le_bytes(self.part(offset, 2)?.try_into().ok()?))
    }

    pub(crate) fn u32(self, offset: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.part(offset, 4)?.try_into().ok()?))
    }

    pub(crate) fn u64(self, offset: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.part(offset, 8)?.try_into().ok()?))
    }

    /// The text from `offset` to the next NUL.
    pub(crate) fn text(self, offset: u64) -> Option<&'a str> {
        let rest = self.0.get(usize::try_from(offset).ok()?..)?;
        std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == 0)?]).ok()
    }
}
