//! What crosses between shim and daemon: messages, shared pages, and the locks on them.
//!
//! Owned by neither side. Both map the same [`TenantMemory`], ledger and usage page (written by the tenant's
//! processes; to the daemon every value in it is a claim) and the same [`QuotaPage`] (written by the daemon,
//! mapped read-only by the processes). Packets are only for saying hello and for people's commands.
#![deny(unsafe_code)]

pub mod audit;
pub mod lock;
pub mod memory;
pub mod message;
pub mod notice;
pub mod page;
pub mod secret;
pub mod socket;
pub mod stat;
pub mod usage;

pub use memory::Mapping;
pub use page::QuotaPage;
pub use secret::Secret;
pub use stat::Stat;
pub use usage::TenantMemory;
