//! The CUDA driver API and NVML as data: names, ABIs, versions, classes, layouts.
//!
//! `data/cuda-surface.json` is the only list of driver functions in the project. From it come the exports
//! of the shim and of the simulated driver, what `cuGetProcAddress` answers, the classes that decide what
//! is hooked, and the tests that keep all of these honest. No unsafe code, no I/O, no policy.
#![forbid(unsafe_code)]

pub mod codegen;
pub mod layout;
mod types;

pub use types::*;

#[allow(unused_imports)] // The generated types use what the list needs.
use core::ffi::{c_char, c_int, c_void};

include!(concat!(env!("OUT_DIR"), "/list.rs"));

/// Which library exports a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// `libcuda.so.1`
    Cuda,
    /// `libnvidia-ml.so.1`
    Nvml,
}

impl Library {
    /// The name under which programs open it.
    pub const fn soname(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so.1",
            Self::Nvml => "libnvidia-ml.so.1",
        }
    }
}

/// What an entry point is for; the words are those of the list's `meta.classes` and `meta.nvml_classes`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// May take device memory.
    Alloc,
    /// Gives memory back.
    Free,
    /// Life cycle of contexts.
    Context,
    /// Submits work to an engine.
    Launch,
    /// Answers that may have to be virtualised.
    Query,
    /// Gives out function pointers.
    Resolve,
    /// Waits or polls.
    Sync,
    /// Changes what later calls mean.
    State,
    /// Forwarded untouched.
    Pass,
    /// NVML: memory numbers.
    QueryMem,
    /// NVML: utilisation numbers.
    QueryUtil,
    /// NVML: lists of processes.
    Procs,
    /// NVML: device identity.
    Enum,
    /// NVML: MIG topology reads.
    Mig,
    /// NVML: MIG changes.
    MigControl,
    /// NVML: XID and other events.
    Event,
    /// NVML: ECC and repair counters.
    Health,
    /// NVML: init and shutdown.
    Lifecycle,
    /// NVML: changes device state.
    Control,
}

/// One exported symbol of the driver.
#[derive(Debug)]
pub struct Symbol {
    /// The exported name, such as `cuMemAllocAsync_ptsz`.
    pub name: &'static str,
    /// The name without the per-thread suffix: symbols with one `abi` take the same arguments.
    pub abi: &'static str,
    /// The name that `cuGetProcAddress` is asked for.
    pub base: &'static str,
    /// Who exports it.
    pub library: Library,
    /// What it is for.
    pub class: Class,
    /// True for `_ptds` and `_ptsz` symbols, whose default stream is the thread's own.
    pub per_thread: bool,
    /// True when its answer shows quota instead of hardware.
    pub virtualised: bool,
    /// How what it takes is charged, in the words of the list's `meta.charge_kinds`.
    pub charge: Option<&'static str>,
    /// How what it gives back is credited, in the words of the list's `meta.free_kinds`.
    pub free: Option<&'static str>,
    /// Names and Rust types of the parameters; `None` where no header declares them.
    pub params: Option<&'static [(&'static str, &'static str)]>,
}

/// The place of a symbol in [`SYMBOLS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SymbolId(pub usize);

impl SymbolId {
    /// The symbol exported under exactly this name.
    pub fn exported(name: &str) -> Option<Self> {
        SYMBOLS.binary_search_by(|symbol| symbol.name.cmp(name)).ok().map(Self)
    }

    /// The symbol itself.
    pub fn get(self) -> &'static Symbol {
        &SYMBOLS[self.0]
    }
}

/// One row of the driver's resolver: from `version` on, `base` means `symbol`.
#[derive(Debug)]
pub struct Resolution {
    /// The name asked for.
    pub base: &'static str,
    /// True for the rows that answer the per-thread flag.
    pub per_thread: bool,
    /// 1000 × major + 10 × minor.
    pub version: u64,
    /// What the caller gets.
    pub symbol: SymbolId,
}

/// Why a name was not resolved; the numbers are `CUdriverProcAddressQueryResult`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unresolved {
    /// The driver has no such name.
    UnknownName = 1,
    /// The name exists, for callers of a newer version.
    VersionTooLow = 2,
}

/// What a driver of version `driver` answers to `cuGetProcAddress(base, version, per_thread)`.
///
/// Measured on drivers 470, 535, 550 and 555 (`data/cuda-surface.json`, `get_proc_address_behaviour`): a
/// version above the driver's, a negative one included, means the driver's own; a function with a
/// per-thread variant never falls back to the plain one for a per-thread caller.
pub fn resolve(base: &str, version: i32, per_thread: bool, driver: i32) -> Result<SymbolId, Unresolved> {
    let driver = u64::try_from(driver).unwrap_or(0);
    let asked = u64::try_from(version).unwrap_or(u64::MAX);
    let first = RESOLVER.partition_point(|row| row.base < base);
    let rows: Vec<&Resolution> =
        RESOLVER[first..].iter().take_while(|row| row.base == base).filter(|row| row.version <= driver).collect();
    if rows.is_empty() {
        return Err(Unresolved::UnknownName);
    }
    let lane = per_thread && rows.iter().any(|row| row.per_thread);
    rows.iter()
        .filter(|row| row.per_thread == lane && row.version <= asked)
        .max_by_key(|row| row.version)
        .map(|row| row.symbol)
        .ok_or(Unresolved::VersionTooLow)
}

/// The lowest driver version that exports `symbol`, as far as the resolver's rows tell; 0 when they do not.
pub fn since(symbol: SymbolId) -> u64 {
    RESOLVER.iter().filter(|row| row.symbol == symbol).map(|row| row.version).min().unwrap_or(0)
}

/// Room that one element of an array takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ElementSize {
    /// Times the number of channels.
    BytesPerChannel(u32),
    /// All channels together.
    BitsPerPixel(u32),
    /// For four by four pixels, all channels together.
    BytesPerBlock(u32),
}

/// One `CUarray_format`.
#[derive(Debug)]
pub struct ArrayFormat {
    /// Name without `CU_AD_FORMAT_`.
    pub name: &'static str,
    /// Value of the enumeration.
    pub value: c_int,
    /// Room an element takes.
    pub size: ElementSize,
}
