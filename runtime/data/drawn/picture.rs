//! One picture: coloured noise with a hill of every size, as photographs have, and textured shapes before it.
//!
//! Only operations that IEEE 754 defines to the last bit are used, so the files are the same on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// What a picture shows: its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A board of squares.
    Checker,
    /// Two bars.
    Cross,
    /// A filled circle.
    Disc,
    /// A filled rhombus.
    Rhombus,
    /// A circle with a hole.
    Ring,
    /// A filled square.
    Square,
    /// Parallel bars.
    Stripes,
    /// A filled triangle.
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
    /// The name of its class folder.
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

    /// Whether it covers a point of the square -1..1.
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

/// Cells of the noise, in pixels, and how far each moves a level.
const OCTAVES: [(usize, f32); 6] = [(128, 60.0), (64, 36.0), (32, 24.0), (16, 18.0), (6, 16.0), (2, 13.0)];

/// Draws `shape` two or three times; gives RGB levels, width and height.
pub fn draw(shape: Shape, random: &mut ChaCha8Rng) -> (Vec<u8>, u32, u32) {
    let (width, height) = match random.next_u32() % 4 {
        0 => (375, 500),
        1 => (500, 333),
        _ => (500, 375),
    };
    let base = colour(random);
    let tint = colour(random);
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
    (rgb, width as u32, height as u32)
}

/// A shape somewhere in the picture.
struct Figure {
    centre: (f32, f32),
    radius: f32,
    /// Cosine and sine of its turn.
    turn: (f32, f32),
    colour: [f32; 3],
    contrast: f32,
}

impl Figure {
    fn new(width: usize, height: usize, random: &mut ChaCha8Rng) -> Self {
        let (x, y) = (unit(random) * 2.0 - 1.0, unit(random) * 2.0 - 1.0);
        let length = (x * x + y * y).sqrt().max(0.01);
        Figure {
            centre: (unit(random) * width as f32, unit(random) * height as f32),
            radius: (0.12 + 0.3 * unit(random)) * height as f32,
            turn: (x / length, y / length),
            colour: colour(random),
            contrast: 0.3 + unit(random),
        }
    }

    fn covers(&self, shape: Shape, x: f32, y: f32) -> bool {
        let (x, y) = ((x - self.centre.0) / self.radius, (y - self.centre.1) / self.radius);
        let (cosine, sine) = self.turn;
        shape.covers(x * cosine - y * sine, x * sine + y * cosine)
    }
}

/// Value noise: for each octave a grid of random levels, bilinear between them.
fn noise(width: usize, height: usize, random: &mut ChaCha8Rng) -> Vec<f32> {
    let mut levels = vec![0.0; width * height];
    for (cell, strength) in OCTAVES {
        let columns = width / cell + 2;
        let grid: Vec<f32> =
            (0..columns * (height / cell + 2)).map(|_| (unit(random) * 2.0 - 1.0) * strength).collect();
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

/// A colour that noise leaves room around.
fn colour(random: &mut ChaCha8Rng) -> [f32; 3] {
    std::array::from_fn(|_| 48.0 + 160.0 * unit(random))
}

/// Uniform in 0..1, 24 bits of it.
fn unit(random: &mut ChaCha8Rng) -> f32 {
    (random.next_u32() >> 8) as f32 / (1 << 24) as f32
}
