//! The parts of an overlay: its keys for every size and, in the overlay of a training, a section of keys for each size,
//! such as `A100x1x8`: hardware x hosts x devices of each, as in the name of FlagPerf's `config_A100x1x8.py`.

use super::file::ConfigFile;
use super::yaml::{Content, Node};
use super::{CaseKey, Finding, Origin, Scale, SettingsFile, list_names};

/// Keys of an overlay that are applied together.
pub struct OverlayPart<'f> {
    pub(super) file: &'f ConfigFile,
    pub(super) entries: Vec<(&'f String, &'f Node)>,
    /// The size to which the keys apply; `None` for every size.
    size: Option<&'f str>,
}

impl<'f> OverlayPart<'f> {
    /// Returns the part for every size, then one for each size.
    ///
    /// # Errors
    /// When what stands at a size is no section. Every part that can be read is returned beside the findings.
    pub(super) fn of(file: &'f ConfigFile, key: &CaseKey, findings: &mut Vec<Finding>) -> Vec<OverlayPart<'f>> {
        let is_section = |name: &str| is_size_section(key.settings_file(), name);
        let (sized, entries): (Vec<_>, Vec<_>) = file.entries.iter().partition(|(name, _)| is_section(name));
        let mut parts = vec![OverlayPart { file, entries, size: None }];
        for (name, node) in sized {
            if let Some((hardware, scale)) = parse_size(name)
                && *name != format!("{hardware}x{scale}")
            {
                let message = format!("`{name}` is not the name of a size");
                let hint = format!("write `{hardware}x{scale}`");
                findings.push(Finding::error(file.origin(node), message).with_hint(hint));
                continue;
            }
            match &node.content {
                Content::Map(entries) => {
                    parts.push(OverlayPart { file, entries: entries.iter().collect(), size: Some(name) });
                }
                _ => {
                    let message = format!("`{name}` must be a section with the keys for that size");
                    findings.push(Finding::error(file.origin(node), message));
                }
            }
        }
        findings.extend(no_section(file, &parts[1..], key));
        parts
    }

    /// Returns whether the part applies to a case.
    pub(super) fn applies_to(&self, key: &CaseKey) -> bool {
        self.size.is_none_or(|size| key.size().as_deref() == Some(size))
    }

    /// Returns whether an origin is a line of this part.
    pub(super) fn contains(&self, origin: &Origin) -> bool {
        self.entries.iter().any(|(_, node)| self.file.origin(node) == *origin)
    }
}

/// Returns whether a key of an overlay of `file` is a section for a size.
pub fn is_size_section(file: &SettingsFile, name: &str) -> bool {
    file.has_sections && parse_size(name).is_some()
}

/// Returns the note that an overlay has sections, but none for the size of a case.
fn no_section(file: &ConfigFile, sections: &[OverlayPart<'_>], key: &CaseKey) -> Option<Finding> {
    let size = key.size()?;
    if sections.is_empty() || sections.iter().any(|section| section.applies_to(key)) {
        return None;
    }
    let sizes = list_names(sections.iter().filter_map(|section| section.size));
    let message = format!("the overlay has no section for `{size}` (known: {sizes})");
    Some(Finding::info(file.whole(), message))
}

/// Reads a size such as `A100x1x8`.
fn parse_size(text: &str) -> Option<(&str, Scale)> {
    let (rest, _) = text.rsplit_once('x')?;
    let (hardware, _) = rest.rsplit_once('x')?;
    let scale = text.strip_prefix(hardware)?.strip_prefix('x')?.parse().ok()?;
    (!hardware.is_empty()).then_some((hardware, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_hardware_and_a_scale() {
        assert_eq!(parse_size("A100x1x8"), Some(("A100", Scale { hosts: 1, devices: 8 })));
        assert_eq!(parse_size("maxxx2x8"), Some(("maxx", Scale { hosts: 2, devices: 8 })));
        for text in ["A100", "A100x8", "x1x8", "A100x1x0", "A100xx8", "1x8", "batch_size"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
