//! Looks at the objects that the dynamic loader has mapped, without asking `dlsym`, which we replace.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_void};

/// One mapped object.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    base: usize,
    /// The addresses its segments cover.
    range: (usize, usize),
    name: &'static CStr,
    dynamic: Dynamic,
}

#[derive(Clone, Copy, Default)]
struct Dynamic {
    strings: usize,
    symbols: usize,
    gnu_hash: usize,
    hash: usize,
    soname: Option<usize>,
}

/// The objects of the process in the loader's order: the program, the preloaded, then the rest as they came.
pub(crate) fn objects() -> Vec<Object> {
    let mut found: Vec<Object> = Vec::with_capacity(64);
    // SAFETY: the callback gets back the pointer to `found`, which outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: `objects` passed a `Vec<Object>`.
    let found = unsafe { &mut *found.cast::<Vec<Object>>() };
    // SAFETY: the loader passes a valid structure for the call.
    let info = unsafe { &*info };
    // SAFETY: the loader's headers are mapped as long as the object.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let mut range = (usize::MAX, 0);
    let mut dynamic = None;
    for header in headers {
        let start = base.wrapping_add(header.p_vaddr as usize);
        match header.p_type {
            libc::PT_LOAD => range = (range.0.min(start), range.1.max(start.wrapping_add(header.p_memsz as usize))),
            libc::PT_DYNAMIC => dynamic = Some(start),
            _ => {}
        }
    }
    // SAFETY: a C string of the loader's; objects we keep a view of are never unloaded while we use it.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) };
    if let Some(at) = dynamic {
        found.push(Object { base, range, name, dynamic: read_dynamic(at, base) });
    }
    0
}

fn read_dynamic(mut at: usize, base: usize) -> Dynamic {
    const DT_NULL: i64 = 0;
    const DT_HASH: i64 = 4;
    const DT_STRTAB: i64 = 5;
    const DT_SYMTAB: i64 = 6;
    const DT_SONAME: i64 = 14;
    const DT_GNU_HASH: i64 = 0x6fff_fef5;
    let mut dynamic = Dynamic::default();
    // glibc relocates these pointers in place, but not those of the vDSO and not on every architecture.
    let pointer = |value: u64| if (value as usize) < base { base + value as usize } else { value as usize };
    loop {
        // SAFETY: the dynamic section is an array of pairs that ends with DT_NULL.
        let [tag, value] = unsafe { (at as *const [u64; 2]).read() };
        match tag as i64 {
            DT_NULL => return dynamic,
            DT_HASH => dynamic.hash = pointer(value),
            DT_STRTAB => dynamic.strings = pointer(value),
            DT_SYMTAB => dynamic.symbols = pointer(value),
            DT_GNU_HASH => dynamic.gnu_hash = pointer(value),
            DT_SONAME => dynamic.soname = Some(value as usize),
            _ => {}
        }
        at += size_of::<[u64; 2]>();
    }
}

impl Object {
    /// The path under which it was loaded; empty for the program itself.
    pub(crate) fn path(&self) -> &'static CStr {
        self.name
    }

    /// The name it calls itself.
    pub(crate) fn soname(&self) -> Option<&'static CStr> {
        let offset = self.dynamic.soname.filter(|_| self.dynamic.strings != 0)?;
        // SAFETY: an offset into the string table, by the format.
        Some(unsafe { CStr::from_ptr((self.dynamic.strings + offset) as *const _) })
    }

    /// True when `address` lies in it.
    pub(crate) fn contains(&self, address: *const c_void) -> bool {
        (self.range.0..self.range.1).contains(&(address as usize))
    }

    /// The address of the function or object that it exports under `name`.
    pub(crate) fn lookup(&self, name: &CStr) -> Option<*const c_void> {
        if self.dynamic.strings == 0 || self.dynamic.symbols == 0 {
            return None;
        }
        if self.dynamic.gnu_hash != 0 { self.lookup_gnu(name) } else { self.lookup_sysv(name) }
    }

    fn lookup_gnu(&self, name: &CStr) -> Option<*const c_void> {
        let hash =
            name.to_bytes().iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let table = self.dynamic.gnu_hash;
        let word = |at: usize| {
            // SAFETY: within the hash table, whose header gives its extents.
            unsafe { (at as *const u32).read() }
        };
        let (buckets, first, bloom) = (word(table), word(table + 4), word(table + 8) as usize);
        let bucket_at = table + 16 + bloom * size_of::<usize>();
        if buckets == 0 {
            return None;
        }
        let mut index = word(bucket_at + 4 * (hash % buckets) as usize);
        if index < first || index == 0 {
            return None;
        }
        let chains = bucket_at + 4 * buckets as usize;
        loop {
            let chain = word(chains + 4 * (index - first) as usize);
            if (chain | 1) == (hash | 1)
                && let Some(address) = self.symbol(index, name)
            {
                return Some(address);
            }
            if chain & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }

    fn lookup_sysv(&self, name: &CStr) -> Option<*const c_void> {
        let table = self.dynamic.hash;
        if table == 0 {
            return None;
        }
        // SAFETY: the header of a SysV hash table; its second word is the number of symbols.
        let count = unsafe { ((table + 4) as *const u32).read() };
        (0..count).find_map(|index| self.symbol(index, name))
    }

    fn symbol(&self, index: u32, name: &CStr) -> Option<*const c_void> {
        const STT_TLS: u8 = 6;
        const STT_GNU_IFUNC: u8 = 10;
        // SAFETY: `index` comes from the object's own hash table.
        let symbol = unsafe { (self.dynamic.symbols as *const libc::Elf64_Sym).add(index as usize).read() };
        // SAFETY: an offset into the string table, by the format.
        let found = unsafe { CStr::from_ptr((self.dynamic.strings + symbol.st_name as usize) as *const _) };
        let kind = symbol.st_info & 0xf;
        let defined = symbol.st_shndx != 0 && kind != STT_TLS && kind != STT_GNU_IFUNC;
        (defined && found == name).then(|| (self.base + symbol.st_value as usize) as *const c_void)
    }
}
