//! How long copies and memsets take on the device: no time, unless `FAKE_CUDA_BANDWIDTH` says how fast they are.

use super::{SettingError, parse_size, text};

/// Bytes a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bandwidth {
    /// Between the host and a device.
    host: u64,
    /// Within a device, and between two.
    device: u64,
}

impl Bandwidth {
    /// What the environment says; `None` where copies take no time.
    ///
    /// # Errors
    /// A setting that can't be followed.
    pub fn from_environment() -> Result<Option<Self>, SettingError> {
        text("FAKE_CUDA_BANDWIDTH")?.map(|value| Self::parse(&value)).transpose()
    }

    /// Two sizes a second such as `25GB,1500GB`, to and from the host and on devices, or one for both.
    ///
    /// # Errors
    /// A setting that can't be followed.
    pub fn parse(value: &str) -> Result<Self, SettingError> {
        let wrong = |why| SettingError {
            variable: "FAKE_CUDA_BANDWIDTH",
            value: value.to_owned(),
            why,
            right: "one size a second, or two for copies of the host and of devices, is right, such as 25GB,1500GB",
        };
        let one = |text: &str| match parse_size(text) {
            Ok(0) => Err(wrong("nothing would ever be copied".to_owned())),
            outcome => outcome.map_err(wrong),
        };
        match value.split_once(',') {
            Some((host, device)) => Ok(Self { host: one(host)?, device: one(device)? }),
            None => one(value).map(|both| Self { host: both, device: both }),
        }
    }

    /// What it takes to move so many bytes, or to set them.
    pub fn duration_ns(&self, bytes: u64, of_host: bool) -> u64 {
        let rate = u128::from(if of_host { self.host } else { self.device });
        u64::try_from(u128::from(bytes) * 1_000_000_000 / rate).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_take_what_their_bytes_take() {
        let both = Bandwidth::parse("25GB, 1000GB").unwrap();
        assert_eq!((both.duration_ns(25_000_000, true), both.duration_ns(25_000_000, false)), (1_000_000, 25_000));
        assert_eq!(Bandwidth::parse("1GiB").unwrap().duration_ns(1 << 40, false), 1_024_000_000_000);
        for wrong in ["0", "fast", "1GB,", "1GB,2GB,3GB", "25GB,0"] {
            assert!(Bandwidth::parse(wrong).unwrap_err().to_string().contains("FAKE_CUDA_BANDWIDTH"), "{wrong}");
        }
    }
}
