//! Recognises a file by its first bytes, for the message about one that is not of the expected kind: it states what the file is
//! and what to do.

use std::fmt;

/// Number of bytes by which every kind is recognised.
pub const HEAD_BYTES: usize = 512;

/// A kind of file that is often taken for another.
#[derive(Debug)]
pub struct FileKind {
    /// What the file is, with an article.
    pub name: &'static str,
    /// What to do instead.
    pub remedy: &'static str,
    begins: fn(&[u8]) -> bool,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is {}: {}", self.name, self.remedy)
    }
}

const TO_SAFETENSORS: &str = "convert it to .safetensors, or use such a file of the model";
const WEIGHTS_ALONE: &str = "it contains weights alone: `weights` in parameters.yaml names it";
const TO_PNG: &str = "convert it to PNG, which loses nothing (supported: BMP, GIF, JPEG, PNG, WebP)";
const UNPACK: &str = "unpack it";
const OTHER: &str = "name another file";

/// Every kind. A file is of the first one that its bytes fit.
static TABLE: &[FileKind] = &[
    FileKind {
        name: "a pointer of git LFS, not the file itself",
        remedy: "get the file with `git lfs pull`, or download it",
        begins: |head| head.starts_with(b"version https://git-lfs.github.com/spec/"),
    },
    FileKind {
        name: "an HTML page, not the file itself",
        remedy: "open it to see what the web site answered, such as a form to log in, and download the file again",
        begins: |head| begins_as_text(head, &["<!doctype html", "<html"]),
    },
    FileKind {
        name: "an XML text, not the file itself",
        remedy: "open it to see what the server answered, and download the file again",
        begins: |head| begins_as_text(head, &["<?xml"]),
    },
    FileKind { name: "a GGUF file (llama.cpp)", remedy: WEIGHTS_ALONE, begins: |head| head.starts_with(b"GGUF") },
    FileKind {
        name: "an HDF5 file (Keras)",
        remedy: TO_SAFETENSORS,
        begins: |head| head.starts_with(b"\x89HDF\r\n\x1a\n"),
    },
    FileKind { name: "a TensorFlow Lite model", remedy: "convert it to ONNX", begins: |head| has(head, 4, b"TFL3") },
    FileKind { name: "a safetensors file", remedy: WEIGHTS_ALONE, begins: is_safetensors },
    FileKind {
        name: "a zip archive",
        remedy: "one with a state_dict belongs to `weights` in parameters.yaml; unpack any other",
        begins: |head| head.starts_with(b"PK\x03\x04"),
    },
    FileKind {
        name: "an array of numpy (.npy)",
        remedy: TO_SAFETENSORS,
        begins: |head| head.starts_with(b"\x93NUMPY"),
    },
    FileKind { name: "compressed with gzip", remedy: UNPACK, begins: |head| head.starts_with(b"\x1f\x8b") },
    FileKind { name: "compressed with xz", remedy: UNPACK, begins: |head| head.starts_with(b"\xfd7zXZ\0") },
    FileKind {
        name: "compressed with Zstandard",
        remedy: UNPACK,
        begins: |head| head.starts_with(b"\x28\xb5\x2f\xfd"),
    },
    FileKind { name: "a tar archive", remedy: UNPACK, begins: |head| has(head, 257, b"ustar") },
    FileKind { name: "a WebP image", remedy: OTHER, begins: |head| head.starts_with(b"RIFF") && has(head, 8, b"WEBP") },
    FileKind { name: "a GIF image", remedy: OTHER, begins: |head| head.starts_with(b"GIF8") },
    FileKind {
        name: "a BMP image",
        remedy: OTHER,
        // Two letters alone may begin a text; the reserved bytes are zero.
        begins: |head| head.starts_with(b"BM") && has(head, 6, &[0; 4]),
    },
    FileKind {
        name: "a TIFF image",
        remedy: TO_PNG,
        begins: |head| head.starts_with(b"II\x2a\0") || head.starts_with(b"MM\0\x2a"),
    },
    FileKind {
        name: "a HEIF or AVIF image",
        remedy: TO_PNG,
        begins: |head| {
            let brands = [b"heic", b"heix", b"mif1", b"avif", b"avis"];
            has(head, 4, b"ftyp") && brands.iter().any(|brand| has(head, 8, *brand))
        },
    },
    FileKind {
        name: "a JPEG 2000 or JPEG XL image",
        remedy: TO_PNG,
        begins: |head| has(head, 4, b"jP  ") || has(head, 4, b"JXL ") || head.starts_with(b"\xff\x0a"),
    },
    FileKind { name: "a JPEG image", remedy: OTHER, begins: |head| head.starts_with(b"\xff\xd8\xff") },
    FileKind { name: "a PNG image", remedy: OTHER, begins: |head| head.starts_with(b"\x89PNG\r\n\x1a\n") },
    FileKind { name: "a PDF document", remedy: OTHER, begins: |head| head.starts_with(b"%PDF-") },
];

/// Returns what a file is, by its first [`HEAD_BYTES`] bytes or all of them; `None` if it is of no kind in the table.
pub fn recognise(bytes: &[u8]) -> Option<&'static FileKind> {
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    TABLE.iter().find(|kind| (kind.begins)(head))
}

/// Returns the reason for a file that is not of the expected kind: what it is, if that is known, or else `reason`.
pub fn reason_for(bytes: &[u8], reason: impl FnOnce() -> String) -> String {
    recognise(bytes).map_or_else(reason, ToString::to_string)
}

/// Returns whether the bytes begin, after white space and a byte order mark, with one of these texts in any letter case.
fn begins_as_text(head: &[u8], beginnings: &[&str]) -> bool {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    beginnings.iter().any(|text| head.get(..text.len()).is_some_and(|head| head.eq_ignore_ascii_case(text.as_bytes())))
}

/// Returns whether the bytes are the length of a header and the `{` of the header.
fn is_safetensors(head: &[u8]) -> bool {
    has(head, 4, b"\0\0\0\0{")
}

/// Returns whether these bytes are at a position.
fn has(head: &[u8], at: usize, bytes: &[u8]) -> bool {
    head.get(at..at + bytes.len()) == Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_recognised_by_its_first_bytes_with_what_to_do() {
        let text = |bytes: &[u8]| recognise(bytes).map(ToString::to_string).unwrap_or_default();
        for (bytes, expected) in [
            (
                &b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n"[..],
                "it is a pointer of git LFS, not the file itself: ",
            ),
            (b"\xef\xbb\xbf\n <!DOCTYPE HTML>", "it is an HTML page, "),
            (b"<html lang=en>", "it is an HTML page, "),
            (b"<?xml version=\"1.0\"?><Error>", "it is an XML text, "),
            (b"GGUF\x03\0\0\0", "it is a GGUF file (llama.cpp): it contains weights alone"),
            (b"\x89HDF\r\n\x1a\n\0", "it is an HDF5 file (Keras): convert it to .safetensors"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "it is a WebP image: name another file"),
            (b"GIF89a", "it is a GIF image: "),
            (b"BM\x46\0\0\0\0\0\0\0\x36", "it is a BMP image: "),
            (b"\x10\0\0\0\0\0\0\0{\"a\"", "it is a safetensors file: "),
            (b"\x1c\0\0\0TFL3", "it is a TensorFlow Lite model: convert it to ONNX"),
            (b"\0\0\0\x1cftypavif", "it is a HEIF or AVIF image: "),
        ] {
            assert!(text(bytes).starts_with(expected), "{:?}: {}", String::from_utf8_lossy(bytes), text(bytes));
        }
        for unknown in [&b""[..], b"BMW\n", b"{\"version\": 1}", b"\x08\x08\x12\x04test"] {
            assert_eq!(text(unknown), "", "{unknown:?}");
        }
    }

    #[test]
    fn every_kind_is_distinct_and_says_what_to_do() {
        let mut names: Vec<&str> = TABLE.iter().map(|kind| kind.name).collect();
        assert!(TABLE.iter().all(|kind| !kind.remedy.is_empty()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }
}
