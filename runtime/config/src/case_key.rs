//! The key of a case in `CASES`: `<case>:<framework>[_<version>][:<hosts>x<devices>]`.

use std::fmt;
use std::str::FromStr;

use super::Finding;

/// A case and its framework.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CaseKey {
    /// The case: `resnet50`.
    pub case: String,
    /// The framework as written: `interpreter`, `pytorch_1.13`.
    pub framework: String,
    /// The number of hosts and devices that run it.
    pub scale: Scale,
}

/// How many hosts run a case, and how many devices of each: FlagPerf's `1x1`, `1x8` and `2x8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale {
    /// Number of hosts, the first ones of `HOSTS`.
    pub hosts: u32,
    /// Number of devices of each host, the first ones that are visible.
    pub devices: u32,
}

impl Scale {
    /// One device of one host.
    pub const ONE: Scale = Scale { hosts: 1, devices: 1 };
    /// Largest number of hosts and of devices of a host.
    pub const MAX: u32 = 1024;
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.hosts, self.devices)
    }
}

impl FromStr for Scale {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=Scale::MAX).contains(number)).ok_or(());
        let (hosts, devices) = text.split_once('x').ok_or(())?;
        Ok(Scale { hosts: number(hosts)?, devices: number(devices)? })
    }
}

impl CaseKey {
    /// Returns the framework without its version: `pytorch` for `pytorch_1.13`.
    pub fn framework_name(&self) -> &str {
        match self.framework.rsplit_once('_') {
            Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
            _ => &self.framework,
        }
    }

    /// Returns the name of the case's folder in a run, such as `resnet50_interpreter` or `resnet50_interpreter_2x8`.
    pub fn folder(&self) -> String {
        let scale = if self.scale == Scale::ONE { String::new() } else { format!("_{}", self.scale) };
        format!("{}_{}{scale}", self.case, self.framework)
    }
}

impl fmt::Display for CaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.case, self.framework)?;
        if self.scale == Scale::ONE { Ok(()) } else { write!(f, ":{}", self.scale) }
    }
}

impl FromStr for CaseKey {
    type Err = Finding;

    fn from_str(text: &str) -> Result<Self, Finding> {
        let refused = |reason: String| {
            let form = "is not a case key (`<case>:<framework>[_<version>][:<hosts>x<devices>]`)";
            let separator = if reason.is_empty() { "" } else { ": " };
            Finding::unplaced(format!("`{text}` {form}{separator}{reason}"))
        };
        let (case, rest) = text.split_once(':').ok_or_else(|| refused(String::new()))?;
        let (framework, scale) = match rest.split_once(':') {
            Some((framework, scale)) => (framework, scale.parse().map_err(|()| refused(scale_fault(scale)))?),
            None if is_scale(rest) => {
                return Err(refused(format!("the framework is missing before `{rest}`: `{case}:FRAMEWORK:{rest}`")));
            }
            None => (rest, Scale::ONE),
        };
        match is_name(case) && is_name(framework) {
            true => Ok(CaseKey { case: case.to_owned(), framework: framework.to_owned(), scale }),
            false => Err(refused(String::new())),
        }
    }
}

/// Returns whether `text` looks like numbers of hosts and devices: `2x1`.
fn is_scale(text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('x').is_some_and(|(hosts, devices)| is_number(hosts) && is_number(devices))
}

/// Returns what is wrong with the last part of a case key.
fn scale_fault(text: &str) -> String {
    match is_scale(text) {
        true => format!("the numbers of hosts and devices must be from 1 to {}, not `{text}`", Scale::MAX),
        false => format!("`{text}` is not a number of hosts and a number of devices of each, such as `2x8`"),
    }
}

/// Returns whether `text` is a valid folder name without path separators or `..`.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric())
        && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_key_is_a_case_and_a_framework_with_or_without_a_version() {
        let key: CaseKey = "resnet50:pytorch_1.13".parse().unwrap();
        assert_eq!((key.case.as_str(), key.framework.as_str()), ("resnet50", "pytorch_1.13"));
        assert_eq!(key.framework_name(), "pytorch");
        assert_eq!("bert:my_framework".parse::<CaseKey>().unwrap().framework_name(), "my_framework");
        assert_eq!(key.folder(), "resnet50_pytorch_1.13");
        assert_eq!(key.to_string(), "resnet50:pytorch_1.13");
        let key: CaseKey = "resnet50:pytorch:2x8".parse().unwrap();
        assert_eq!((key.scale, key.folder().as_str()), (Scale { hosts: 2, devices: 8 }, "resnet50_pytorch_2x8"));
        assert_eq!(key.to_string(), "resnet50:pytorch:2x8");
        assert_eq!("resnet50:pytorch:1x1".parse::<CaseKey>().unwrap().to_string(), "resnet50:pytorch");
    }

    #[test]
    fn anything_else_is_refused() {
        let form = "is not a case key (`<case>:<framework>[_<version>][:<hosts>x<devices>]`)";
        let limits = "the numbers of hosts and devices must be from 1 to 1024, not";
        for (text, reason) in [
            ("resnet50", String::new()),
            ("resnet50:", String::new()),
            (":interpreter", String::new()),
            ("../x:interpreter", String::new()),
            ("a/b:c", String::new()),
            ("a:b:c", ": `c` is not a number of hosts and a number of devices of each, such as `2x8`".to_owned()),
            ("a:b:2x", ": `2x` is not a number of hosts and a number of devices of each, such as `2x8`".to_owned()),
            ("a:b:0x1", format!(": {limits} `0x1`")),
            ("a:b:1x0", format!(": {limits} `1x0`")),
            ("a:b:1x2000", format!(": {limits} `1x2000`")),
            (
                "a:b:2x8:1",
                ": `2x8:1` is not a number of hosts and a number of devices of each, such as `2x8`".to_owned(),
            ),
            ("tiny:2x1", ": the framework is missing before `2x1`: `tiny:FRAMEWORK:2x1`".to_owned()),
        ] {
            let message = text.parse::<CaseKey>().unwrap_err().to_string();
            assert_eq!(message, format!("`{text}` {form}{reason}"));
        }
    }
}
