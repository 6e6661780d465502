//! Texture and surface references: of a module by name, or made by the program; and how they sample.

use crate::args::{Answer, get, put, put_at, slice, text};
use crate::entry::Call;
use crate::module::MODULES;
use crate::registry::Registry;
use core::ffi::{c_char, c_int, c_uint};
use driver_api::{CUaddress_mode, CUarray_format, CUfilter_mode, CUmodule, CUresult, CUsurfref, CUtexref};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

static REFERENCES: Registry<Reference> = Registry::new();
/// References of modules: by the module's handle and the name.
static NAMED: Mutex<BTreeMap<(usize, String), usize>> = Mutex::new(BTreeMap::new());

/// What has been set of a reference.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) address: u64,
    pub(super) array: usize,
    pub(super) mipmapped_array: usize,
    modes: [CUaddress_mode; 3],
    filter: CUfilter_mode,
    mipmap_filter: CUfilter_mode,
    flags: c_uint,
    format: CUarray_format,
    channels: c_int,
    anisotropy: c_uint,
    bias: f32,
    clamp: [f32; 2],
    border: [f32; 4],
}

/// A texture or surface reference.
pub(crate) struct Reference {
    pub(super) state: Mutex<State>,
}

impl Reference {
    fn create() -> CUtexref {
        let state = State {
            address: 0,
            array: 0,
            mipmapped_array: 0,
            modes: [0; 3],
            filter: 0,
            mipmap_filter: 0,
            flags: 0,
            // Floats of one channel.
            format: 0x20,
            channels: 1,
            anisotropy: 1,
            bias: 0.0,
            clamp: [0.0; 2],
            border: [0.0; 4],
        };
        REFERENCES.insert(Arc::new(Self { state: Mutex::new(state) }))
    }
}

/// The reference behind a handle.
pub(crate) fn find(reference: CUtexref) -> Answer<Arc<Reference>> {
    REFERENCES.get(reference)
}

fn of_module(module: CUmodule, name: *const c_char) -> Answer<CUtexref> {
    let found = MODULES.get(module)?;
    let name = text(name)?.to_str().map_err(|_| CUresult::NOT_FOUND)?;
    // Only images that can't be read through may have one: texture references are not among the names.
    if name.is_empty() || !(found.image().open || found.image().globals.contains_key(name)) {
        return Err(CUresult::NOT_FOUND);
    }
    let mut named = NAMED.lock();
    let handle = named.entry((module.addr(), name.to_owned())).or_insert_with(|| Reference::create().addr());
    Ok(crate::registry::pointer(*handle))
}

/// Ends the references of a module.
pub(crate) fn module_unloads(module: CUmodule) {
    let mut named = NAMED.lock();
    named.retain(|(owner, _), handle| {
        let stays = *owner != module.addr();
        if !stays {
            drop(REFERENCES.remove(crate::registry::pointer(*handle)));
        }
        stays
    });
}

pub(crate) fn cuModuleGetTexRef(_: &Call, out: *mut CUtexref, module: CUmodule, name: *const c_char) -> Answer {
    put(out, of_module(module, name)?)
}

pub(crate) fn cuModuleGetSurfRef(_: &Call, out: *mut CUsurfref, module: CUmodule, name: *const c_char) -> Answer {
    put(out, of_module(module, name)?)
}

pub(crate) fn cuTexRefCreate(_: &Call, out: *mut CUtexref) -> Answer {
    crate::state::current()?;
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, Reference::create())
}

pub(crate) fn cuTexRefDestroy(_: &Call, reference: CUtexref) -> Answer {
    REFERENCES.remove(reference).map(drop)
}

fn dimension(dim: c_int) -> Answer<usize> {
    usize::try_from(dim).ok().filter(|dim| *dim < 3).ok_or(CUresult::INVALID_VALUE)
}

fn set(reference: CUtexref, valid: bool, change: impl FnOnce(&mut State)) -> Answer {
    let reference = find(reference)?;
    if !valid {
        return Err(CUresult::INVALID_VALUE);
    }
    change(&mut reference.state.lock());
    Ok(())
}

pub(crate) fn cuTexRefSetAddressMode(_: &Call, reference: CUtexref, dim: c_int, mode: CUaddress_mode) -> Answer {
    let dim = dimension(dim)?;
    set(reference, (0..=3).contains(&mode), |state| state.modes[dim] = mode)
}

pub(crate) fn cuTexRefGetAddressMode(_: &Call, mode: *mut CUaddress_mode, reference: CUtexref, dim: c_int) -> Answer {
    put(mode, find(reference)?.state.lock().modes[dimension(dim)?])
}

pub(crate) fn cuTexRefSetFilterMode(_: &Call, reference: CUtexref, mode: CUfilter_mode) -> Answer {
    set(reference, (0..=1).contains(&mode), |state| state.filter = mode)
}

pub(crate) fn cuTexRefGetFilterMode(_: &Call, mode: *mut CUfilter_mode, reference: CUtexref) -> Answer {
    put(mode, find(reference)?.state.lock().filter)
}

pub(crate) fn cuTexRefSetMipmapFilterMode(_: &Call, reference: CUtexref, mode: CUfilter_mode) -> Answer {
    set(reference, (0..=1).contains(&mode), |state| state.mipmap_filter = mode)
}

pub(crate) fn cuTexRefGetMipmapFilterMode(_: &Call, mode: *mut CUfilter_mode, reference: CUtexref) -> Answer {
    put(mode, find(reference)?.state.lock().mipmap_filter)
}

pub(crate) fn cuTexRefSetMipmapLevelBias(_: &Call, reference: CUtexref, bias: f32) -> Answer {
    set(reference, true, |state| state.bias = bias)
}

pub(crate) fn cuTexRefGetMipmapLevelBias(_: &Call, bias: *mut f32, reference: CUtexref) -> Answer {
    put(bias, find(reference)?.state.lock().bias)
}

pub(crate) fn cuTexRefSetMipmapLevelClamp(_: &Call, reference: CUtexref, least: f32, most: f32) -> Answer {
    set(reference, true, |state| state.clamp = [least, most])
}

pub(crate) fn cuTexRefGetMipmapLevelClamp(_: &Call, least: *mut f32, most: *mut f32, reference: CUtexref) -> Answer {
    let clamp = find(reference)?.state.lock().clamp;
    put(least, clamp[0])?;
    put(most, clamp[1])
}

pub(crate) fn cuTexRefSetMaxAnisotropy(_: &Call, reference: CUtexref, most: c_uint) -> Answer {
    set(reference, true, |state| state.anisotropy = most)
}

pub(crate) fn cuTexRefGetMaxAnisotropy(_: &Call, most: *mut c_int, reference: CUtexref) -> Answer {
    put(most, find(reference)?.state.lock().anisotropy.cast_signed())
}

pub(crate) fn cuTexRefSetFlags(_: &Call, reference: CUtexref, flags: c_uint) -> Answer {
    set(reference, flags < 0x40, |state| state.flags = flags)
}

pub(crate) fn cuTexRefGetFlags(_: &Call, flags: *mut c_uint, reference: CUtexref) -> Answer {
    put(flags, find(reference)?.state.lock().flags)
}

pub(crate) fn cuTexRefSetFormat(_: &Call, reference: CUtexref, format: CUarray_format, channels: c_int) -> Answer {
    let valid = driver_api::ARRAY_FORMATS.iter().any(|known| known.value == format) && matches!(channels, 1 | 2 | 4);
    set(reference, valid, |state| (state.format, state.channels) = (format, channels))
}

pub(crate) fn cuTexRefGetFormat(
    _: &Call,
    format: *mut CUarray_format,
    channels: *mut c_int,
    reference: CUtexref,
) -> Answer {
    let state = *find(reference)?.state.lock();
    put(format, state.format)?;
    put(channels, state.channels)
}

pub(crate) fn cuTexRefSetBorderColor(_: &Call, reference: CUtexref, color: *mut f32) -> Answer {
    let color = slice(color.cast_const(), 4)?;
    set(reference, true, |state| state.border.copy_from_slice(color))
}

pub(crate) fn cuTexRefGetBorderColor(_: &Call, color: *mut f32, reference: CUtexref) -> Answer {
    get(color.cast_const())?;
    let border = find(reference)?.state.lock().border;
    border.iter().enumerate().try_for_each(|(at, part)| put_at(color, at, *part))
}
