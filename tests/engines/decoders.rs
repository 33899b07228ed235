//! Decoders of images that vendors bring: what they compute is in the record, and a wrong one fails the case.

#![expect(clippy::unwrap_used, reason = "functions of tests, too, may panic")]

use std::fs;
use std::path::Path;

use libjpeg_turbo_rs::{Decoder, PixelFormat, Subsampling, compress};
use serde_json::Value;
use tempfile::TempDir;

use crate::support;
use crate::support::program::command;

/// What the decoder of the tests may do wrong, by the names in its source.
const FAULTS: [&str; 8] =
    ["HONEST", "WRONG_PIXELS", "NO_PIXEL", "FAILS", "UNSUPPORTED", "DAMAGED", "OTHER_STATUS", "CANNOT_OPEN"];
const CLASSES: usize = 3;
const IMAGES: usize = 8;

/// A checkout whose vendor `cpu` has the decoder of the tests once with each fault, and images that it can decode.
struct Fixture {
    checkout: TempDir,
    cache: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Fixture { checkout: support::checkout(), cache: tempfile::tempdir().unwrap() };
        let vendor = fixture.checkout.path().join("vendors/cpu");
        fs::create_dir(vendor.join("decoder")).unwrap();
        fs::copy(support::root().join("tests/engines/decoder.c"), vendor.join("decoder/decoder.c")).unwrap();
        let mut text = fs::read_to_string(vendor.join("vendor.yaml")).unwrap() + "decoders:\n";
        for (name, define) in FAULTS
            .map(|fault| (fault.to_lowercase(), format!("-DFAULT={fault}")))
            .into_iter()
            .chain([("newer".to_owned(), "-DVERSION=9".to_owned()), ("broken".to_owned(), "-DFAULT=(".to_owned())])
        {
            text += &format!(
                "    {name}:\n        about: a test\n        folder: decoder\n        command: [cc, \"{define}\", -Wall, -Wextra, \
                 -Werror, -O1, -shared, -fPIC, -I, \"{{include}}\", decoder.c, -o, \"{{output}}\"]\n"
            );
        }
        fs::write(vendor.join("vendor.yaml"), text).unwrap();
        fixture.write_images();
        fixture
    }

    /// Writes images with their pixels in comments; the last of them is a PNG file, and without comments.
    fn write_images(&self) {
        for at in 0..IMAGES {
            let folder = self.data().join(format!("class{}", at % CLASSES));
            fs::create_dir_all(&folder).unwrap();
            let (width, height) = (40 + at as u32, 50 - at as u32);
            let level = |place: usize| ((place * 7 / 3 + at * 31) % 251) as u8;
            let rgb: Vec<u8> = (0..(width * height * 3) as usize).map(level).collect();
            if at + 1 == IMAGES {
                let image = image::RgbImage::from_raw(width, height, rgb).unwrap();
                image.save(folder.join("last.png")).unwrap();
                continue;
            }
            let jpeg =
                compress(&rgb, width as usize, height as usize, PixelFormat::Rgb, 90, Subsampling::S420).unwrap();
            let mut decoder = Decoder::new(&jpeg).unwrap();
            decoder.set_output_format(PixelFormat::Rgb);
            let mut decoded = vec![0; rgb.len()];
            decoder.decode_image_into(&mut decoded).unwrap();
            let comment = [b"pixels:", &*decoded].concat();
            let length = u16::try_from(comment.len() + 2).unwrap().to_be_bytes();
            let file = [&jpeg[..2], &[0xff, 0xfe], &length, &*comment, &jpeg[2..]].concat();
            fs::write(folder.join(format!("{at}.jpg")), file).unwrap();
        }
    }

    fn data(&self) -> std::path::PathBuf {
        self.checkout.path().join("data")
    }

    fn flagperf(&self, arguments: &[&str]) -> (String, Option<i32>) {
        let output =
            command(self.checkout.path(), arguments).env("FLAGPERF_CACHE", self.cache.path()).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (text, output.status.code())
    }

    fn build(&self, decoder: &str) {
        let (text, code) = self.flagperf(&["decoder", "build", &format!("cpu/{decoder}")]);
        assert_eq!(code, Some(0), "{text}");
        assert!(Path::new(text.trim()).is_file(), "{text}");
    }

    /// Runs a small ResNet-50 with a decoder, and returns its record and the exit code.
    fn run(&self, decoder: &str, more: &[&str]) -> (Value, Option<i32>) {
        let decoder = format!("decoder={decoder}");
        let data = self.data();
        let mut arguments = vec!["--case", "resnet50", "--vendor", "cpu", "--data", data.to_str().unwrap()];
        for setting in [&*decoder, "size=tiny", "image_size=32", "resize=36", "batch_size=3", "repeat=1"] {
            arguments.extend(["--set", setting]);
        }
        arguments.extend(more);
        record_with_cache(self, &arguments)
    }
}

fn record_with_cache(fixture: &Fixture, arguments: &[&str]) -> (Value, Option<i32>) {
    let arguments = [&["run", "--json"], arguments].concat();
    let output =
        command(fixture.checkout.path(), &arguments).env("FLAGPERF_CACHE", fixture.cache.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let record = serde_json::from_slice(&output.stdout);
    (record.unwrap_or_else(|error| panic!("no record: {error}\n{errors}")), output.status.code())
}

fn failure(record: &Value) -> String {
    record["failures"][0]["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn the_record_names_the_decoder_and_how_many_images_it_decoded_with_which_difference() {
    if !support::has_compiler("cc") {
        return;
    }
    let fixture = Fixture::new();
    fixture.build("honest");
    let (with, code) = fixture.run("honest", &["--set", "search_loading=true"]);
    assert_eq!(code, Some(0), "{}", failure(&with));
    for phase in with["phases"].as_array().unwrap() {
        let facts = &phase["dataset"]["decoder"];
        assert_eq!(facts["description"], "test decoder 1.0", "{facts}");
        assert_eq!((&facts["largest_difference"], &facts["mean_difference"]), (&0.into(), &0.0.into()), "{facts}");
        assert_eq!(facts["library_sha256"].as_str().unwrap().len(), 64);
        // A pass has the seven JPEG files and the PNG; warm-up and audits read more.
        assert!(facts["images"].as_u64() >= Some(7) && facts["on_processor"].as_u64() >= Some(1), "{facts}");
    }
    let search = &with["phases"][1]["dataset"]["loading"];
    let tried = search["tried"].as_array().unwrap();
    assert!(tried.len() >= 3 && search["chosen"].as_u64() < Some(tried.len() as u64), "{search}");
    assert!(with["phases"][0]["dataset"]["loading"].is_null(), "validation is not measured for its speed");
    let (without, _) = fixture.run("null", &[]);
    assert_eq!(with["accuracy"], without["accuracy"], "the pixels are the same");
    let run = format!("result/{}", with["run"].as_str().unwrap());
    let (text, code) = fixture.flagperf(&["verify", &run]);
    assert!(code == Some(0) && text.contains("consistent"), "{text}");
}

#[test]
fn a_wrong_decoder_fails_the_case_with_its_name_and_an_image_that_it_does_not_support_is_counted() {
    if !support::has_compiler("cc") {
        return;
    }
    let fixture = Fixture::new();
    for (decoder, reason) in [
        (
            "wrong_pixels",
            "the pixels of decoder `wrong_pixels` differ from those of flagperf by 9 levels at most and 9.000 on",
        ),
        ("no_pixel", "that no pixel has"),
        ("fails", "decoder `fails`: the device was lost"),
        ("damaged", "damaged JPEG"),
        ("other_status", "decoder `other_status` set the unknown status 7 of an image"),
        ("cannot_open", "decoder `cannot_open`: the device is missing"),
        ("newer", "uses interface version `9`, but this program `1`"),
    ] {
        fixture.build(decoder);
        let (record, code) = fixture.run(decoder, &[]);
        assert_eq!(code, Some(1), "{decoder}");
        assert!(failure(&record).contains(reason), "{decoder}: {}", failure(&record));
    }
    fixture.build("unsupported");
    let (record, code) = fixture.run("unsupported", &[]);
    assert_eq!(code, Some(0), "{}", failure(&record));
    assert_eq!(record["phases"][1]["dataset"]["decoder"]["images"], 0);
}

#[test]
fn what_cannot_be_decoded_or_built_is_said_before_the_run() {
    if !support::has_compiler("cc") {
        return;
    }
    let fixture = Fixture::new();
    let plan = |settings: &[&str]| {
        let mut arguments = vec!["plan", "--case", "resnet50", "--vendor", "cpu"];
        settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
        fixture.flagperf(&arguments).0
    };
    assert!(plan(&["decoder=honest"]).contains("decoder `honest` is not built on this machine"));
    assert!(plan(&["decoder=honest"]).contains("run `flagperf decoder build cpu/honest`"));
    let unknown = plan(&["decoder=honst"]);
    assert!(
        unknown.contains("vendor `cpu` has no decoder `honst`") && unknown.contains("nearest: honest"),
        "{unknown}"
    );
    let (text, code) = fixture.flagperf(&["decoder", "build", "cpu/broken"]);
    assert!(code == Some(2) && text.contains("decoder `cpu/broken`: `cc` exited with status 1"), "{text}");
    for (name, reason) in [("honest", "give VENDOR/NAME"), ("cpu/x", "has no decoder `x`"), ("nobody/x", "nobody")] {
        let (text, code) = fixture.flagperf(&["decoder", "build", name]);
        assert!(code == Some(2) && text.contains(reason), "{text}");
    }
    fixture.build("honest");
    let (record, _) = record_with_cache(
        &fixture,
        &[
            "--case",
            "yolov5",
            "--vendor",
            "cpu",
            "--set",
            "decoder=honest",
            "--set",
            "size=tiny",
            "--set",
            "batch_size=2",
        ],
    );
    assert!(failure(&record).contains("which is not the source of this dataset"), "{}", failure(&record));
}
