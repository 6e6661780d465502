//! Libraries: images that belong to no context and are loaded into each as it needs them.

pub(crate) mod calls;
pub(crate) mod kernel;
pub(crate) mod linker;

use crate::args::Answer;
use crate::context::Context;
use crate::module::image::Image;
use crate::module::{Module, kernel_facts};
use crate::registry::{Registry, handle_of, pointer};
use driver_api::{CUlibrary, CUresult};
use kernel::{KERNELS, Kernel};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::Arc;

pub(crate) static LIBRARIES: Registry<Library> = Registry::new();

/// A loaded library.
pub(crate) struct Library {
    image: Arc<Image>,
    kernels: Mutex<BTreeMap<String, Arc<Kernel>>>,
    /// Its modules by the id of the context.
    modules: Mutex<BTreeMap<u64, Arc<Module>>>,
}

/// The library behind a handle.
pub(crate) fn find(handle: CUlibrary) -> Answer<Arc<Library>> {
    LIBRARIES.get(handle)
}

impl Library {
    pub(crate) fn load(image: Arc<Image>) -> CUlibrary {
        LIBRARIES.insert(Arc::new(Self { image, kernels: Mutex::default(), modules: Mutex::default() }))
    }

    /// The kernel of a name; 500 when the image has none.
    pub(crate) fn kernel(self: &Arc<Self>, name: &CStr) -> Answer<Arc<Kernel>> {
        let text = name.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        let mut kernels = self.kernels.lock();
        if let Some(kernel) = kernels.get(text) {
            return Ok(Arc::clone(kernel));
        }
        let facts = kernel_facts(&self.image, text)?;
        let kernel = Arc::new(Kernel::new(name, facts, self));
        KERNELS.insert(Arc::clone(&kernel));
        kernels.insert(text.to_owned(), Arc::clone(&kernel));
        Ok(kernel)
    }

    /// The library's module in a context, loaded at the first question.
    pub(crate) fn module(self: &Arc<Self>, context: &Arc<Context>) -> Answer<Arc<Module>> {
        let mut modules = self.modules.lock();
        if let Some(module) = modules.get(&context.id) {
            return Ok(Arc::clone(module));
        }
        let module = Module::load(context, Arc::clone(&self.image), handle_of(self))?;
        modules.insert(context.id, Arc::clone(&module));
        Ok(module)
    }

    pub(crate) fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Ends the library: its kernels, and its module in every context.
    pub(crate) fn unload(self: &Arc<Self>) -> Answer {
        LIBRARIES.remove(pointer(handle_of(self)))?;
        for kernel in std::mem::take(&mut *self.kernels.lock()).values() {
            drop(KERNELS.remove(kernel.handle()));
        }
        for module in std::mem::take(&mut *self.modules.lock()).values() {
            module.unload();
        }
        Ok(())
    }
}

/// Forgets the modules of a context that is destroyed; `module` has ended them.
pub(crate) fn context_closes(context: &Context) {
    for library in LIBRARIES.all() {
        library.modules.lock().remove(&context.id);
        let kernels: Vec<Arc<Kernel>> = library.kernels.lock().values().cloned().collect();
        kernels.iter().for_each(|kernel| kernel.forget(context.id));
    }
}
