//! What is said when something is refused: one line for each cause.

use super::Account;
use crate::hooks::Refusal;
use crate::log;
use quota_core::Bytes;
use quota_core::settings::LogLevel;

impl Account {
    /// The driver had no room for what the quota had: others use the device.
    pub(crate) fn device_is_full(&self, asked: u64) {
        static SAID: log::Once = log::Once::new();
        if SAID.first() {
            log::line(
                LogLevel::Warn,
                format_args!(
                    "out of memory: the device is full, by what others hold; {} asked on device {}, within the quota (tenant {})",
                    Bytes(asked).human(),
                    self.device,
                    self.member.tenant
                ),
            );
        }
    }

    pub(crate) fn deny(&self, asked: Bytes) -> Refusal {
        static SAID: log::Once = log::Once::new();
        let level = if SAID.first() { LogLevel::Warn } else { LogLevel::Info };
        let (used, cap) = (self.used(), self.cap().unwrap_or(self.total()));
        log::line(
            level,
            format_args!(
                "out of memory: {} asked on device {}, {} of the {} quota in use (tenant {}); raise GPUQUOTA_MEMORY or use gpuquota set",
                asked.human(),
                self.device,
                used.human(),
                cap.human(),
                self.member.tenant
            ),
        );
        Refusal::Quota
    }

    pub(super) fn deny_firm(&self, asked: Bytes, most: Bytes) -> Refusal {
        static SAID: log::Once = log::Once::new();
        let level = if SAID.first() { LogLevel::Warn } else { LogLevel::Info };
        log::line(
            level,
            format_args!(
                "out of memory: {} that can't be moved to the host asked on device {}, {} of at most {} in use (tenant {} is oversubscribed); raise its quota, or run it without --oversubscribe",
                asked.human(),
                self.device,
                self.firm_used().human(),
                most.human(),
                self.member.tenant
            ),
        );
        Refusal::Quota
    }

    pub(super) fn stuck(&self, why: &str) -> Refusal {
        static SAID: log::Once = log::Once::new();
        if SAID.first() {
            log::line(
                LogLevel::Error,
                format_args!("the ledger's lock can't be had: {why}; the allocation is refused"),
            );
        }
        Refusal::Quota
    }
}
