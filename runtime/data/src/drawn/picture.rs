//! One picture: coloured noise at several scales, as in photographs, with textured shapes in front of it.
//!
//! Only operations that IEEE 754 defines to the last bit are used, so the files are identical on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// The shape in a picture, which is its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Checker,
    Cross,
    Disc,
    Rhombus,
    Ring,
    Square,
    Stripes,
    Triangle,
}

/// Every shape, in byte order of the names.
pub const SHAPES: [Shape; 8] = [
    Shape::Checker,
    Shape::Cross,
    Shape::Disc,
    Shape::Rhombus,
    Shape::Ring,
    Shape::Square,
    Shape::Stripes,
    Shape::Triangle,
];

impl Shape {
    /// Returns the name of the class folder.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Checker => "checker",
            Shape::Cross => "cross",
            Shape::Disc => "disc",
            Shape::Rhombus => "rhombus",
            Shape::Ring => "ring",
            Shape::Square => "square",
            Shape::Stripes => "stripes",
            Shape::Triangle => "triangle",
        }
    }

    /// Returns whether the shape covers a point of the square -1..1.
    fn covers(self, x: f32, y: f32) -> bool {
        let inside = x.abs() <= 1.0 && y.abs() <= 1.0;
        let band = |v: f32| ((v + 1.0) * 3.0) as i32;
        match self {
            Shape::Checker => inside && (band(x) + band(y)) % 2 == 0,
            Shape::Cross => inside && (x.abs() < 0.3 || y.abs() < 0.3),
            Shape::Disc => x * x + y * y <= 1.0,
            Shape::Rhombus => x.abs() + y.abs() <= 1.0,
            Shape::Ring => (0.3..=1.0).contains(&(x * x + y * y)),
            Shape::Square => inside,
            Shape::Stripes => inside && band(x) % 2 == 0,
            Shape::Triangle => y <= 1.0 && y >= 2.0 * x.abs() - 1.0,
        }
    }
}

/// The octaves of the noise: the cell size in pixels, and the largest change of a level.
const OCTAVES: [(usize, f32); 6] = [(128, 60.0), (64, 36.0), (32, 24.0), (16, 18.0), (6, 16.0), (2, 13.0)];

/// Width of the outline in a mask, in pixels.
const OUTLINE: f32 = 3.0;

/// Width and height of a picture with boxes. Those of COCO have at most 640 pixels.
const BOX_SIZES: [(usize, usize); 4] = [(640, 480), (480, 640), (500, 500), (640, 427)];

/// An object in a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnObject {
    /// Left, top, width and height in pixels.
    pub bbox: [usize; 4],
    /// Number of its pixels, including those behind another object.
    pub area: usize,
}

/// A picture in memory.
pub struct Picture {
    /// RGB levels, row by row.
    pub rgb: Vec<u8>,
    pub width: usize,
    pub height: usize,
    shape: Shape,
    figures: Vec<Figure>,
}

impl Picture {
    /// Returns the shape in the picture.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the objects that have pixels in the picture.
    pub fn objects(&self) -> Vec<DrawnObject> {
        let object = |figure: &Figure| {
            let (mut left, mut top, mut right, mut bottom, mut area) = (self.width, self.height, 0, 0, 0);
            for (y, x) in (0..self.height).flat_map(|y| (0..self.width).map(move |x| (y, x))) {
                if figure.covers(self.shape, x as f32, y as f32) {
                    (left, top, right, bottom) = (left.min(x), top.min(y), right.max(x + 1), bottom.max(y + 1));
                    area += 1;
                }
            }
            (area > 0).then(|| DrawnObject { bbox: [left, top, right - left, bottom - top], area })
        };
        self.figures.iter().filter_map(object).collect()
    }

    /// Returns the label of every pixel: 0 for the background, 1 inside a shape, and 2 on the outline of all shapes
    /// together.
    pub fn mask(&self) -> Vec<u8> {
        let covers = |x: f32, y: f32| self.figures.iter().any(|figure| figure.covers(self.shape, x, y));
        let label = |at: usize| {
            let (x, y) = ((at % self.width) as f32, (at / self.width) as f32);
            let beside = [(x - OUTLINE, y), (x + OUTLINE, y), (x, y - OUTLINE), (x, y + OUTLINE)];
            match covers(x, y) {
                false => 0,
                true if beside.iter().all(|(x, y)| covers(*x, *y)) => 1,
                true => 2,
            }
        };
        (0..self.width * self.height).map(label).collect()
    }
}

/// Draws a picture of the size of a picture with boxes.
pub fn draw_for_boxes(shape: Shape, random: &mut ChaCha8Rng) -> Picture {
    let size = BOX_SIZES[random.next_u32() as usize % BOX_SIZES.len()];
    draw_sized(shape, size, random)
}

/// Draws a picture with two or three copies of `shape`.
pub fn draw(shape: Shape, random: &mut ChaCha8Rng) -> Picture {
    let size = match random.next_u32() % 4 {
        0 => (375, 500),
        1 => (500, 333),
        _ => (500, 375),
    };
    draw_sized(shape, size, random)
}

fn draw_sized(shape: Shape, (width, height): (usize, usize), random: &mut ChaCha8Rng) -> Picture {
    let base = random_colour(random);
    let tint = random_colour(random);
    let light = noise(width, height, random);
    let hue = noise(width, height, random);
    let figures: Vec<Figure> = (0..2 + random.next_u32() % 2).map(|_| Figure::new(width, height, random)).collect();
    let mut rgb = Vec::with_capacity(width * height * 3);
    for (at, (light, hue)) in light.iter().zip(&hue).enumerate() {
        let (x, y) = ((at % width) as f32, (at / width) as f32);
        let figure = figures.iter().rev().find(|figure| figure.covers(shape, x, y));
        let (ground, light) = figure.map_or((base, *light), |figure| (figure.colour, light * figure.contrast));
        for channel in 0..3 {
            let level = ground[channel] + light + (tint[channel] - 128.0) * hue / 96.0;
            rgb.push(level.clamp(0.0, 255.0) as u8);
        }
    }
    Picture { rgb, width, height, shape, figures }
}

/// One copy of the shape in the picture.
struct Figure {
    centre: (f32, f32),
    radius: f32,
    /// Cosine and sine of the rotation.
    rotation: (f32, f32),
    colour: [f32; 3],
    contrast: f32,
}

impl Figure {
    fn new(width: usize, height: usize, random: &mut ChaCha8Rng) -> Self {
        let (x, y) = (random_unit(random) * 2.0 - 1.0, random_unit(random) * 2.0 - 1.0);
        let length = (x * x + y * y).sqrt().max(0.01);
        Figure {
            centre: (random_unit(random) * width as f32, random_unit(random) * height as f32),
            radius: (0.12 + 0.3 * random_unit(random)) * height as f32,
            rotation: (x / length, y / length),
            colour: random_colour(random),
            contrast: 0.3 + random_unit(random),
        }
    }

    fn covers(&self, shape: Shape, x: f32, y: f32) -> bool {
        let (x, y) = ((x - self.centre.0) / self.radius, (y - self.centre.1) / self.radius);
        let (cosine, sine) = self.rotation;
        shape.covers(x * cosine - y * sine, x * sine + y * cosine)
    }
}

/// Generates value noise: for each octave, a grid of random levels with bilinear interpolation between them.
fn noise(width: usize, height: usize, random: &mut ChaCha8Rng) -> Vec<f32> {
    let mut levels = vec![0.0; width * height];
    for (cell, strength) in OCTAVES {
        let columns = width / cell + 2;
        let grid: Vec<f32> =
            (0..columns * (height / cell + 2)).map(|_| (random_unit(random) * 2.0 - 1.0) * strength).collect();
        for (y, row) in levels.chunks_exact_mut(width).enumerate() {
            let upper = &grid[y / cell * columns..][..columns];
            let lower = &grid[(y / cell + 1) * columns..][..columns];
            let down = (y % cell) as f32 / cell as f32;
            for (x, level) in row.iter_mut().enumerate() {
                let right = (x % cell) as f32 / cell as f32;
                let column = |at: usize| upper[at] + (lower[at] - upper[at]) * down;
                let (left, next) = (column(x / cell), column(x / cell + 1));
                *level += left + (next - left) * right;
            }
        }
    }
    levels
}

/// Returns a random colour far enough from the extremes to leave room for noise.
fn random_colour(random: &mut ChaCha8Rng) -> [f32; 3] {
    std::array::from_fn(|_| 48.0 + 160.0 * random_unit(random))
}

/// Returns a random number, uniform in 0..1, with 24 bits.
fn random_unit(random: &mut ChaCha8Rng) -> f32 {
    (random.next_u32() >> 8) as f32 / (1 << 24) as f32
}
