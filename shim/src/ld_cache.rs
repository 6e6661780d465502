//! Reads `/etc/ld.so.cache` as the dynamic loader does, to find a library's file without loading it.

use std::path::PathBuf;

/// The file ldconfig writes.
pub(crate) const CACHE: &str = "/etc/ld.so.cache";
/// Start of the format that every glibc since 2.2 writes, alone or behind the older one.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// No cache is larger; a broken one must not be read for ever.
const CACHE_BYTES_MAX: usize = 64 << 20;
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;
/// Low byte of an entry's flags: a library for ELF and glibc 2.
const ELF_LIBC6: u32 = 3;

/// Files that the cache lists for `soname`, in its order.
pub(crate) fn find(cache: &[u8], soname: &str) -> Vec<PathBuf> {
    let Some(cache) = new_format(cache) else { return Vec::new() };
    let count = word(cache, 20).unwrap_or(0) as usize;
    (0..count.min(cache.len() / ENTRY_BYTES))
        .filter_map(|index| {
            let entry = HEADER_BYTES + index * ENTRY_BYTES;
            let flags = word(cache, entry)?;
            let key = text(cache, word(cache, entry + 4)? as usize)?;
            let value = text(cache, word(cache, entry + 8)? as usize)?;
            (flags & 0xff == ELF_LIBC6 && key == soname).then(|| PathBuf::from(value))
        })
        .collect()
}

fn new_format(cache: &[u8]) -> Option<&[u8]> {
    if cache.len() > CACHE_BYTES_MAX {
        return None;
    }
    if cache.starts_with(MAGIC) {
        return Some(cache);
    }
    let at = cache.windows(MAGIC.len()).position(|window| window == MAGIC)?;
    Some(&cache[at..])
}

fn word(cache: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(cache.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn text(cache: &[u8], at: usize) -> Option<&str> {
    let rest = cache.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    core::str::from_utf8(&rest[..end]).ok()
}
