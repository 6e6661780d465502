//! Modules: images loaded into a context, with their functions and variables.
//!
//! What is charged to the device: the code of all modules of a context together, in whole pages, and each
//! variable as a block of its own. Variables start as zeros, whatever the image says, since nothing here
//! reads what kernels would compute from them.

pub(crate) mod calls;
pub(crate) mod elf;
pub(crate) mod fatbin;
pub(crate) mod function;
pub(crate) mod image;
pub(crate) mod ptx;
pub(crate) mod raw;

use crate::args::Answer;
use crate::context::Context;
use crate::managed::VARIABLE;
use crate::memory::{self, Kind, Placement};
use crate::registry::{Registry, handle_of, pointer};
use driver_api::{CUfunction, CUmodule, CUresult, layout};
use function::{FUNCTIONS, Function};
use image::{GlobalFacts, Image, KernelFacts, UNKNOWN_GLOBAL_BYTES};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::Arc;

pub(crate) static MODULES: Registry<Module> = Registry::new();

/// Code that each context has loaded, by the context's id: bytes, and what of the device is charged.
static CODE: Mutex<BTreeMap<u64, (u64, u64)>> = Mutex::new(BTreeMap::new());

/// One loaded image.
pub(crate) struct Module {
    pub(crate) context: Arc<Context>,
    image: Arc<Image>,
    /// The library that it was loaded for, 0 for none.
    pub(crate) library: usize,
    functions: Mutex<BTreeMap<String, Arc<Function>>>,
    globals: Mutex<BTreeMap<String, (u64, u64)>>,
}

impl Module {
    /// Loads an image into a context: takes memory for code and variables.
    pub(crate) fn load(context: &Arc<Context>, image: Arc<Image>, library: usize) -> Answer<Arc<Self>> {
        charge_code(context, image.code_bytes)?;
        let module = Arc::new(Self {
            context: Arc::clone(context),
            image,
            library,
            functions: Mutex::default(),
            globals: Mutex::default(),
        });
        for (name, facts) in &module.image.globals {
            if let Err(error) = module.place(name, *facts) {
                module.give_back();
                return Err(error);
            }
        }
        MODULES.insert(Arc::clone(&module));
        Ok(module)
    }

    fn place(&self, name: &str, facts: GlobalFacts) -> Answer<(u64, u64)> {
        let kind = if facts.managed { Kind::Managed(VARIABLE) } else { Kind::Global };
        let address = memory::allocate(&self.context, facts.bytes, kind, Placement::Any)?;
        self.globals.lock().insert(name.to_owned(), (address, facts.bytes));
        Ok((address, facts.bytes))
    }

    /// The function of a name; 500 when the image has none.
    pub(crate) fn function(self: &Arc<Self>, name: &CStr) -> Answer<Arc<Function>> {
        let name = name.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        if let Some(function) = self.functions.lock().get(name) {
            return Ok(Arc::clone(function));
        }
        let facts = kernel_facts(&self.image, name)?;
        let function = Arc::new(Function::new(name, facts, self));
        FUNCTIONS.insert(Arc::clone(&function));
        self.functions.lock().insert(name.to_owned(), Arc::clone(&function));
        Ok(function)
    }

    /// Address and size of a variable; 500 when the image has none of that name.
    pub(crate) fn global(&self, name: &CStr) -> Answer<(u64, u64)> {
        let name = name.to_str().map_err(|_| CUresult::NOT_FOUND)?;
        if let Some(place) = self.globals.lock().get(name) {
            return Ok(*place);
        }
        if !self.image.open {
            return Err(CUresult::NOT_FOUND);
        }
        self.place(name, GlobalFacts { bytes: UNKNOWN_GLOBAL_BYTES, managed: false })
    }

    pub(crate) fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// Ends the module: handles and memory.
    pub(crate) fn unload(self: &Arc<Self>) {
        drop(MODULES.remove(self.handle()));
        crate::texture::reference::module_unloads(self.handle());
        for function in std::mem::take(&mut *self.functions.lock()).values() {
            drop(FUNCTIONS.remove(function.handle()));
        }
        self.give_back();
    }

    fn give_back(&self) {
        for (address, _) in std::mem::take(&mut *self.globals.lock()).values() {
            memory::remove(*address, |_| true);
        }
        uncharge_code(&self.context, self.image.code_bytes);
    }

    /// What the program holds.
    pub(crate) fn handle(self: &Arc<Self>) -> CUmodule {
        pointer(handle_of(self))
    }
}

/// What an image tells of a kernel; 500 when it has none of that name.
pub(crate) fn kernel_facts(image: &Image, name: &str) -> Answer<KernelFacts> {
    match image.kernels.get(name) {
        Some(facts) => Ok(facts.clone()),
        None if image.open && !name.is_empty() => Ok(KernelFacts::default()),
        None => Err(CUresult::NOT_FOUND),
    }
}

fn charge_code(context: &Context, bytes: u64) -> Answer {
    let mut all = CODE.lock();
    let (used, charged) = all.entry(context.id).or_default();
    let pages = layout::round_up(*used + bytes, layout::DEVICE_PAGE).ok_or(CUresult::OUT_OF_MEMORY)?;
    if pages > *charged {
        context.device.take(pages - *charged)?;
        *charged = pages;
    }
    *used += bytes;
    Ok(())
}

fn uncharge_code(context: &Context, bytes: u64) {
    let mut all = CODE.lock();
    let (used, charged) = all.entry(context.id).or_default();
    *used -= bytes;
    let pages = layout::round_up(*used, layout::DEVICE_PAGE).unwrap_or(*charged);
    context.device.give(*charged - pages);
    *charged = pages;
    if pages == 0 {
        all.remove(&context.id);
    }
}

/// Ends the modules of a context that is destroyed. Its variables go with the rest of its memory.
pub(crate) fn context_closes(context: &Arc<Context>) {
    for module in MODULES.remove_all(|module| module.context.id == context.id) {
        module.unload();
    }
    crate::library::context_closes(context);
}

/// The handles of a module's functions that the image lists.
fn listed(module: &Arc<Module>) -> Answer<Vec<CUfunction>> {
    let names: Vec<String> = module.image.kernels.keys().cloned().collect();
    let handles = names.iter().map(|name| {
        let name = std::ffi::CString::new(name.as_str()).map_err(|_| CUresult::NOT_FOUND)?;
        Ok(module.function(&name)?.handle())
    });
    handles.collect()
}
