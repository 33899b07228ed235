//! Reads the times of steps from `samples.<phase>.csv`, and those of queries from `queries.csv`, as a stream: a file of ten million
//! rows has a gigabyte.
//!
//! A number is read by a parser of its own, which is ten times as fast as that of the standard library and exact to the last digit that
//! a chart can show.

use std::io::{self, Read};
use std::path::Path;

use flagperf_core::regular_file::open_regular;

/// The first line of each file; that of queries depends on whether the model generates text.
const QUERY_HEAD: &[u8] = b"trial,scheduled_s,issued_s,started_s,ended_s,core_s,batch\n";
const TOKEN_HEAD: &[u8] = b"trial,scheduled_s,issued_s,started_s,ended_s,core_s,batch,first_token_s,next_token_s\n";
const HEAD: &[u8] = b"pass,samples,load_wait_s,core_s,output_s,evaluate_s,host_s,outputs\n";
/// The first columns of each file, which are never empty.
const ALWAYS_GIVEN: usize = 7;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Longest row.
const ROW_BYTES_MAX: usize = 4096;
/// The longest time of a step and of a case, in seconds: thirty years.
pub(super) const SECONDS_MAX: f64 = 1e9;
/// The number of digits with which a number is read without rounding.
const DIGITS_MAX: u32 = 19;
/// The powers of ten that a float has exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// What a chart needs of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepRow {
    /// The number of its pass.
    pub(super) pass: u32,
    /// Its time in *core*, in seconds.
    pub(super) core_s: f64,
    /// Its whole time, in seconds.
    pub(super) total_s: f64,
}

/// Calls `each` with every step of a file, in order.
///
/// # Errors
/// When the file cannot be read, or a row is not one that a run writes.
pub(super) fn read_steps(path: &Path, mut each: impl FnMut(StepRow)) -> io::Result<()> {
    read_rows(path, HEAD, "a step", |[pass, _, load, core, output, evaluate, host]: [f64; 7]| {
        let total = load + core + output + evaluate + host;
        let is_possible = total <= SECONDS_MAX;
        is_possible.then(|| each(StepRow { pass: pass as u32, core_s: core, total_s: total })).is_some()
    })
}

/// What a chart needs of a query, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct QueryRow {
    /// The number of its trial.
    pub(super) trial: u32,
    /// From its scheduled arrival until its answer.
    pub(super) latency_s: f64,
    /// From its scheduled arrival until its first token, and the mean time between the tokens of its answer, if they are known.
    pub(super) first_token_s: Option<f64>,
    pub(super) next_token_s: Option<f64>,
}

/// Calls `each` with every query of a file, in order.
///
/// # Errors
/// As [`read_steps`].
pub(super) fn read_queries(path: &Path, mut each: impl FnMut(QueryRow)) -> io::Result<()> {
    let mut row = |[trial, scheduled, ended]: [f64; 3], [first_token, next_token]: [f64; 2]| {
        let known = |time: f64| Some(time).filter(|time| !time.is_nan());
        let (first_token_s, next_token_s) = (known(first_token - scheduled), known(next_token));
        let is_possible = scheduled <= ended
            && ended <= SECONDS_MAX
            && [first_token_s, next_token_s].into_iter().flatten().all(|time| (0.0..=SECONDS_MAX).contains(&time));
        let row = QueryRow { trial: trial as u32, latency_s: ended - scheduled, first_token_s, next_token_s };
        is_possible.then(|| each(row)).is_some()
    };
    if has_head(path, TOKEN_HEAD)? {
        return read_rows(
            path,
            TOKEN_HEAD,
            "a query",
            |[trial, scheduled, _, _, ended, _, _, first, next]: [f64; 9]| {
                row([trial, scheduled, ended], [first, next])
            },
        );
    }
    read_rows(path, QUERY_HEAD, "a query", |[trial, scheduled, _, _, ended]: [f64; 5]| {
        row([trial, scheduled, ended], [f64::NAN; 2])
    })
}

/// Returns whether a file begins with this line.
fn has_head(path: &Path, head: &[u8]) -> io::Result<bool> {
    let mut begin = Vec::new();
    open_regular(path)?.take(head.len() as u64).read_to_end(&mut begin)?;
    Ok(begin == head)
}

/// Calls `each` with the first numbers of every row of a file that begins with `head`; it returns whether they are those of `what`.
fn read_rows<const N: usize>(
    path: &Path,
    head: &[u8],
    what: &str,
    mut each: impl FnMut([f64; N]) -> bool,
) -> io::Result<()> {
    let mut file = open_regular(path)?;
    let mut bytes = vec![0; PIECE_BYTES + ROW_BYTES_MAX];
    let (mut filled, mut line, mut is_head) = (0, 1, true);
    loop {
        let count = file.read(&mut bytes[filled..])?;
        filled += count;
        let mut at = 0;
        if is_head && (filled >= head.len() || count == 0) {
            is_head = false;
            at = head.len();
            if !bytes[..filled].starts_with(head) {
                return Err(io::Error::other("it does not have the columns of a run"));
            }
        }
        while let Some((row, length)) = (!is_head).then(|| parse_row(&bytes[at..filled])).flatten() {
            line += 1;
            at += length;
            if !row.is_some_and(&mut each) {
                return Err(io::Error::other(format!("line {line} is not the row of {what}")));
            }
        }
        bytes.copy_within(at..filled, 0);
        filled -= at;
        if count == 0 || filled > ROW_BYTES_MAX {
            let complete = filled == 0 && !is_head;
            return if complete { Ok(()) } else { Err(io::Error::other(format!("it ends within line {}", line + 1))) };
        }
    }
}

/// Parses the row at the beginning of `bytes`, with its length; `None` if the row is not complete, and an inner `None` if it is malformed.
/// An empty field behind the first numbers is NaN.
fn parse_row<const N: usize>(bytes: &[u8]) -> Option<(Option<[f64; N]>, usize)> {
    let (mut at, mut is_over) = (0, false);
    let mut fields = [0.0; N];
    for (index, field) in fields.iter_mut().enumerate() {
        let is_empty = index >= ALWAYS_GIVEN && matches!(bytes.get(at)?, b',' | b'\n');
        let number = if is_empty { Some((f64::NAN, 0)) } else { parse_number(&bytes[at..]) };
        let Some((value, length)) = number.filter(|_| !is_over) else {
            let end = bytes.iter().take(ROW_BYTES_MAX).position(|byte| *byte == b'\n')?;
            return Some((None, end + 1));
        };
        is_over = *bytes.get(at + length)? == b'\n';
        (*field, at) = (value, at + length + 1);
    }
    if is_over {
        return Some((Some(fields), at));
    }
    let end = at + bytes[at..].iter().take(ROW_BYTES_MAX).position(|byte| *byte == b'\n')?;
    Some((Some(fields), end + 1))
}

/// Parses a number that a comma or the end of the line ends, and returns its length; `None` if it is none. The end of `bytes` ends it,
/// too, so that the caller must look what is there.
fn parse_number(bytes: &[u8]) -> Option<(f64, usize)> {
    let (mut mantissa, mut digits, mut decimals, mut length) = (0_u64, 0_u32, 0_usize, 0);
    let mut has_point = false;
    for byte in bytes {
        match byte {
            b'0'..=b'9' => {
                mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
                digits += u32::from(mantissa > 0);
                decimals += usize::from(has_point);
            }
            b'.' if !has_point => has_point = true,
            b',' | b'\n' => break,
            _ => return parse_slowly(bytes),
        }
        length += 1;
    }
    match TENS.get(decimals) {
        Some(ten) if digits <= DIGITS_MAX && length > usize::from(has_point) => Some((mantissa as f64 / ten, length)),
        _ => parse_slowly(bytes),
    }
}

/// Parses a number with an exponent, or with many digits.
fn parse_slowly(bytes: &[u8]) -> Option<(f64, usize)> {
    let end = bytes.iter().position(|byte| matches!(byte, b',' | b'\n')).unwrap_or(bytes.len());
    let value: f64 = std::str::from_utf8(&bytes[..end]).ok()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((value, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> io::Result<Vec<StepRow>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.infer.csv");
        std::fs::write(&path, text).unwrap();
        let mut rows = Vec::new();
        read_steps(&path, |row| rows.push(row)).map(|()| rows)
    }

    fn with_head(rows: &str) -> String {
        format!("{}{rows}", std::str::from_utf8(HEAD).unwrap())
    }

    #[test]
    fn numbers_are_those_of_the_standard_library_in_every_notation() {
        for text in
            ["0.0", "1", "12.5", "0.000012345", "1.2345e-5", "1e3", "0.12345678901234568", "123456789.123456789"]
        {
            let expected: f64 = text.parse().unwrap();
            let (found, length) = parse_number(format!("{text},").as_bytes()).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-15 || found == expected, "{text}: {found}");
            assert_eq!(length, text.len());
        }
        for text in ["", "x", "-1", "1.2.3", "NaN", "inf", "0x1", "1 "] {
            assert_eq!(parse_number(format!("{text},").as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn every_row_is_read_across_the_ends_of_pieces() {
        let row = |pass: u32| format!("{pass},8,0.25,0.5,0.125,0.0,1e-3,{}\n", "0".repeat(32));
        let text: String = (0..60_000).map(row).collect();
        let rows = rows(&with_head(&text)).unwrap();
        assert_eq!(rows.len(), 60_000);
        assert!(rows.iter().zip(0..).all(|(row, pass)| row.pass == pass && row.core_s == 0.5));
        assert_eq!(rows[7].total_s, 0.876);
    }

    #[test]
    fn the_latency_of_a_query_is_from_its_scheduled_time_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queries.csv");
        let read = |head: &[u8], rows: &str| {
            std::fs::write(&path, format!("{}{rows}", std::str::from_utf8(head).unwrap())).unwrap();
            let mut found = Vec::new();
            let row = |row: QueryRow| found.push((row.trial, row.latency_s, row.first_token_s, row.next_token_s));
            read_queries(&path, row).map(|()| found).map_err(|error| error.to_string())
        };
        let rows = "0,1.0,1.5,2.0,3.0,0.5,0\n1,0.5,0.5,0.5,0.75,0.25,0\n";
        assert_eq!(read(QUERY_HEAD, rows).unwrap(), [(0, 2.0, None, None), (1, 0.25, None, None)]);
        let rows = "0,1.0,1.5,2.0,3.0,0.5,0,2.5,0.125\n0,1.0,1.5,2.0,3.0,0.5,1,2.5,\n0,1.0,1.5,2.0,3.0,0.5,2,,\n";
        let expected = [(0, 2.0, Some(1.5), Some(0.125)), (0, 2.0, Some(1.5), None), (0, 2.0, None, None)];
        assert_eq!(read(TOKEN_HEAD, rows).unwrap(), expected);
        for (head, rows) in [
            (QUERY_HEAD, "0,1.0,1.0,1.0,0.5,0.1,0\n"),
            (TOKEN_HEAD, "0,1.0,1.5,2.0,3.0,0.5,0\n"),
            (TOKEN_HEAD, "0,1.0,1.5,2.0,3.0,,0,2.5,0.5\n"),
            (TOKEN_HEAD, "0,1.0,1.5,2.0,3.0,0.5,0,0.5,0.5\n"),
        ] {
            assert_eq!(read(head, rows).unwrap_err(), "line 2 is not the row of a query", "{rows}");
        }
    }

    #[test]
    fn a_file_that_is_cut_or_changed_is_refused_with_the_line() {
        let refused = |text: &str| rows(text).unwrap_err().to_string();
        assert_eq!(refused("a,b\n"), "it does not have the columns of a run");
        assert_eq!(refused(""), "it does not have the columns of a run");
        assert_eq!(refused(&with_head("0,8,0.25,0.5,0.1,0.0,0.0,0\n0,8,0.25,0.5")), "it ends within line 3");
        assert_eq!(
            refused(&with_head("0,8,0.25,0.5,0.1,0.0,0.0,0\n0,8,x,0.5,0,0,0,0\n")),
            "line 3 is not the row of a step"
        );
        assert_eq!(refused(&with_head(&"0,".repeat(9000))), "it ends within line 2");
        assert_eq!(rows(&with_head("")).unwrap(), []);
    }
}
