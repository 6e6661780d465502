//! The list's names, packed: one text and offsets, so that the loader has nothing to relocate in the many
//! programs that never ask for one.

use core::ffi::CStr;
use driver_api::Library;

include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// Number of entry points.
pub(crate) const COUNT: usize = STARTS.len() - 1;

/// The place of an entry point in the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Id(pub(crate) usize);

impl Id {
    /// All of them, sorted by name; CUDA's come before NVML's.
    pub(crate) fn all(library: Library) -> impl Iterator<Item = Self> {
        match library {
            Library::Cuda => (0..CUDA_COUNT).map(Self),
            Library::Nvml => (CUDA_COUNT..COUNT).map(Self),
        }
    }

    /// The one exported under exactly this name.
    pub(crate) fn exported(name: &[u8]) -> Option<Self> {
        let id = Self(first_from(name));
        (id.0 < COUNT && id.bytes() == name).then_some(id)
    }

    /// Those that `cuGetProcAddress` may give for `base`: the name itself, and it with a version or lane suffix.
    pub(crate) fn with_base(base: &[u8]) -> impl Iterator<Item = Self> {
        let candidates = (first_from(base)..COUNT).map(Self).take_while(move |id| id.bytes().starts_with(base));
        candidates.filter(move |id| {
            let suffix = &id.bytes()[base.len()..];
            suffix.is_empty() || suffix.starts_with(b"_v") || suffix.starts_with(b"_pt")
        })
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static CStr {
        let text = &NAMES[usize::from(STARTS[self.0])..usize::from(STARTS[self.0 + 1])];
        CStr::from_bytes_with_nul(text).expect("every name of the packed list ends with NUL")
    }

    /// Who exports it.
    pub(crate) fn library(self) -> Library {
        if self.0 < CUDA_COUNT { Library::Cuda } else { Library::Nvml }
    }

    fn bytes(self) -> &'static [u8] {
        &NAMES[usize::from(STARTS[self.0])..usize::from(STARTS[self.0 + 1]) - 1]
    }
}

/// The first place whose name is not below `name`.
fn first_from(name: &[u8]) -> usize {
    let (mut low, mut high) = (0, COUNT);
    while low < high {
        let middle = low + (high - low) / 2;
        if Id(middle).bytes() < name {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
