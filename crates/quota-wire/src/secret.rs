//! What a process must know to be of a tenant that has a secret. No log shows it, and comparing tells nothing of it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Fewer characters can be guessed.
const BYTES_MIN: usize = 16;
/// More help nobody.
const BYTES_MAX: usize = 1024;
/// What a file with a secret looks like.
pub const SECRET_FORM: &str = "a file with 16 to 1024 characters that others can't read";

/// A secret.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Reads the secret in the file at `path`, without the space around it.
    ///
    /// # Errors
    /// What is wrong with the file, without what is in it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let file = std::fs::File::open(path).map_err(failed)?;
        let data = file.metadata().map_err(failed)?;
        if !data.is_file() {
            return Err("it is no file".to_owned());
        }
        // A group may read it: that is how secrets are mounted into containers.
        if data.mode() & 0o027 != 0 {
            return Err(format!("others may read or change it (its mode is {:o})", data.mode() & 0o777));
        }
        let mut text = String::new();
        file.take(2 * BYTES_MAX as u64).read_to_string(&mut text).map_err(failed)?;
        let text = text.trim();
        if (BYTES_MIN..=BYTES_MAX).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("it has {} characters", text.len()))
        }
    }
}

impl PartialEq for Secret {
    /// Looks at every byte of the other, whether they differ or not.
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (self.0.as_bytes(), other.0.as_bytes());
        let differ = |(at, byte): (usize, &u8)| byte ^ own.get(at).copied().unwrap_or(!byte);
        let differing = other.iter().enumerate().map(differ).fold(0, |all, byte| std::hint::black_box(all | byte));
        differing == 0 && own.len() == other.len()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_equal_to_itself_alone_and_never_shown() {
        let secret = |text: &str| Secret(text.to_owned());
        let own = secret("correct horse battery");
        assert_eq!(own, own.clone());
        for other in ["", "correct horse", "correct horse batterz", "Correct horse battery", "correct horse battery "] {
            assert_ne!(own, secret(other), "{other}");
            assert_ne!(secret(other), own, "{other}");
        }
        assert_eq!(format!("{own:?}"), "a secret");
    }

    #[test]
    fn a_file_that_is_no_secret_is_refused() {
        let path = std::env::temp_dir().join(format!("gq-secret-{}", std::process::id()));
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("writable");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
            Secret::read(&path)
        };
        assert_eq!(write("  0123456789abcdef\n", 0o600), Ok(Secret("0123456789abcdef".to_owned())));
        assert_eq!(write("0123456789abcdef", 0o440), Ok(Secret("0123456789abcdef".to_owned())));
        for (text, mode, wanted) in [
            ("0123456789abcdef", 0o660, "its mode is 660"),
            ("0123456789abcdef", 0o604, "its mode is 604"),
            ("0123456789abcde\n", 0o600, "it has 15 characters"),
            (&"x".repeat(1025), 0o600, "characters"),
            (&"x".repeat(1 << 20), 0o600, "characters"),
        ] {
            assert!(write(text, mode).is_err_and(|error| error.contains(wanted)), "{wanted}");
        }
        std::fs::remove_file(&path).expect("ours");
        assert!(Secret::read(&path).is_err() && Secret::read(&std::env::temp_dir()).is_err());
    }
}
