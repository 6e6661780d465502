//! Texture and surface objects and references. They are descriptions, remembered and read back; no kernel
//! ever looks through them.

pub(crate) mod bindings;
pub(crate) mod reference;

use crate::args::{Answer, get, get_optional, put};
use crate::array::ARRAYS;
use crate::array::mipmap::is_mipmap;
use crate::entry::Call;
use crate::memory;
use crate::registry::pointer;
use crate::state;
use driver_api::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresult, CUsurfObject, CUtexObject};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// `CUresourcetype`
const ARRAY: i32 = 0;
const MIPMAPPED_ARRAY: i32 = 1;
const LINEAR: i32 = 2;
const PITCH_2D: i32 = 3;

#[derive(Clone, Copy)]
struct Texture {
    resource: CUDA_RESOURCE_DESC,
    sampling: CUDA_TEXTURE_DESC,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

/// Live objects by their numbers, and the next number.
struct Objects<T> {
    live: BTreeMap<u64, T>,
    next: u64,
}

impl<T: Copy> Objects<T> {
    const fn new() -> Self {
        Self { live: BTreeMap::new(), next: 1 }
    }

    fn add(&mut self, object: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.live.insert(number, object);
        number
    }

    fn get(&self, number: u64) -> Answer<T> {
        self.live.get(&number).copied().ok_or(CUresult::INVALID_VALUE)
    }

    fn remove(&mut self, number: u64) -> Answer {
        self.live.remove(&number).map(drop).ok_or(CUresult::INVALID_VALUE)
    }
}

static TEXTURES: Mutex<Objects<Texture>> = Mutex::new(Objects::new());
static SURFACES: Mutex<Objects<CUDA_RESOURCE_DESC>> = Mutex::new(Objects::new());

/// Fails when the resource isn't there.
fn check_resource(resource: &CUDA_RESOURCE_DESC) -> Answer {
    let handle = || pointer(usize::try_from(resource.res[0]).unwrap_or(0));
    let known = |bytes: u64| bytes > 0 && memory::covers(resource.res[0], bytes, |_| true);
    match resource.resType {
        ARRAY => ARRAYS.get(handle()).map(drop).map_err(|_| CUresult::INVALID_VALUE),
        MIPMAPPED_ARRAY if is_mipmap(handle()) => Ok(()),
        // Format and channels share the second word; the size is the third.
        LINEAR if known(resource.res[2]) => Ok(()),
        // Width and height in elements, then the bytes of a row.
        PITCH_2D if known(resource.res[3].saturating_mul(resource.res[4])) => Ok(()),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn cuTexObjectCreate(
    _: &Call,
    out: *mut CUtexObject,
    resource: *const CUDA_RESOURCE_DESC,
    sampling: *const CUDA_TEXTURE_DESC,
    view: *const CUDA_RESOURCE_VIEW_DESC,
) -> Answer {
    state::current()?;
    let texture = Texture { resource: get(resource)?, sampling: get(sampling)?, view: get_optional(view) };
    check_resource(&texture.resource)?;
    let modes = texture.sampling.addressMode.iter().all(|mode| (0..=3).contains(mode));
    let is_view_of_array = texture.view.is_none() || matches!(texture.resource.resType, ARRAY | MIPMAPPED_ARRAY);
    if out.is_null() || !modes || !is_view_of_array || !(0..=1).contains(&texture.sampling.filterMode) {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, TEXTURES.lock().add(texture))
}

pub(crate) fn cuTexObjectDestroy(_: &Call, texture: CUtexObject) -> Answer {
    TEXTURES.lock().remove(texture)
}

pub(crate) fn cuTexObjectGetResourceDesc(_: &Call, out: *mut CUDA_RESOURCE_DESC, texture: CUtexObject) -> Answer {
    put(out, TEXTURES.lock().get(texture)?.resource)
}

pub(crate) fn cuTexObjectGetTextureDesc(_: &Call, out: *mut CUDA_TEXTURE_DESC, texture: CUtexObject) -> Answer {
    put(out, TEXTURES.lock().get(texture)?.sampling)
}

pub(crate) fn cuTexObjectGetResourceViewDesc(
    _: &Call,
    out: *mut CUDA_RESOURCE_VIEW_DESC,
    texture: CUtexObject,
) -> Answer {
    put(out, TEXTURES.lock().get(texture)?.view.ok_or(CUresult::INVALID_VALUE)?)
}

pub(crate) fn cuSurfObjectCreate(_: &Call, out: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC) -> Answer {
    state::current()?;
    let resource = get(resource)?;
    check_resource(&resource)?;
    if out.is_null() || resource.resType != ARRAY {
        return Err(CUresult::INVALID_VALUE);
    }
    put(out, SURFACES.lock().add(resource))
}

pub(crate) fn cuSurfObjectDestroy(_: &Call, surface: CUsurfObject) -> Answer {
    SURFACES.lock().remove(surface)
}

pub(crate) fn cuSurfObjectGetResourceDesc(_: &Call, out: *mut CUDA_RESOURCE_DESC, surface: CUsurfObject) -> Answer {
    put(out, SURFACES.lock().get(surface)?)
}
