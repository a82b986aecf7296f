//! A picture of the packing, drawn without any display: shaded spheres with a depth buffer, seen from above the
//! corner between the -y and +x faces, coloured by rank (with a legend) or by speed (with a colour bar).

use super::Shown;

/// Pixels of a picture's side; drawn with twice as many and averaged.
const SIDE: usize = 900;
const SCALE: usize = 2;
const MARGIN: f64 = 50.0;
const LEGEND: usize = 170;
const BACKGROUND: [f64; 3] = [1.0, 1.0, 1.0];
const INK: [u8; 3] = [40, 44, 52];

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourBy {
    /// The rank that owns the particle.
    Rank,
    /// The speed of the particle.
    Speed,
}

/// View of a box from an isometric direction: 45 degrees around z, 30 degrees from above.
struct View {
    centre: [f64; 3],
    scale: f64,
    middle: [f64; 2],
}

impl View {
    const C: f64 = std::f64::consts::FRAC_1_SQRT_2;
    const SIN: f64 = 0.5;
    const COS: f64 = 0.866_025_403_784_438_6;

    fn new(min: [f64; 3], max: [f64; 3], width: f64, height: f64) -> Self {
        let centre = [0, 1, 2].map(|k| 0.5 * (min[k] + max[k]));
        let mut view = Self { centre, scale: 1.0, middle: [0.0; 2] };
        let mut reach = [f64::MIN_POSITIVE; 2];
        for corner in 0..8 {
            let point = [0, 1, 2].map(|k| if corner >> k & 1 == 1 { max[k] } else { min[k] });
            let [x, y, _] = view.project(point);
            reach = [reach[0].max(x.abs()), reach[1].max(y.abs())];
        }
        let margin = MARGIN * SCALE as f64;
        view.scale = ((width / 2.0 - margin) / reach[0]).min((height / 2.0 - margin) / reach[1]);
        view.middle = [width / 2.0, height / 2.0];
        view
    }

    /// Pixel right, pixel down, and nearness to the viewer [in pixels].
    fn project(&self, point: [f64; 3]) -> [f64; 3] {
        let [x, y, z] = [0, 1, 2].map(|k| point[k] - self.centre[k]);
        let across = (x + y) * Self::C;
        let towards = (x - y) * Self::C;
        let right = across * self.scale + self.middle[0];
        let up = (z * Self::COS - towards * Self::SIN) * self.scale;
        let near = (towards * Self::COS + z * Self::SIN) * self.scale;
        [right, self.middle[1] - up, near]
    }
}

struct Canvas {
    width: usize,
    height: usize,
    colour: Vec<[f32; 3]>,
    depth: Vec<f32>,
}

/// What all ranks must agree on to draw the same picture.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    low: [f64; 3],
    high: [f64; 3],
    fastest: f64,
}

impl Scene {
    /// How far particles reach along -x, -y, -z, x, y and z [m], and their largest speed [m/s]. Of several ranks the
    /// largest of each counts.
    pub fn reach(particles: &[Shown]) -> [f64; 7] {
        let mut reach = [f64::NEG_INFINITY; 7];
        reach[6] = 0.0;
        for particle in particles {
            if particle.position.iter().all(|x| x.is_finite()) {
                for axis in 0..3 {
                    reach[axis] = reach[axis].max(particle.radius - particle.position[axis]);
                    reach[axis + 3] = reach[axis + 3].max(particle.position[axis] + particle.radius);
                }
            }
            if particle.speed().is_finite() {
                reach[6] = reach[6].max(particle.speed());
            }
        }
        reach
    }

    /// The view of particles that [`Scene::reach`] so far in the domain `min`..`max` [m].
    pub fn new(reach: [f64; 7], min: [f64; 3], max: [f64; 3]) -> Self {
        let (low, high) = seen(&reach, min, max);
        Self { low, high, fastest: reach[6] }
    }
}

/// Indices of those of `particles` that the others do not hide. Only they can show in a picture of more particles
/// too, so each rank culls its own and few travel to the one that draws.
pub fn visible(particles: &[Shown], scene: &Scene) -> Vec<usize> {
    const TILE: usize = 8;
    let side = SIDE * SCALE;
    let tiles = side.div_ceil(TILE);
    let view = View::new(scene.low, scene.high, side as f64, side as f64);
    // From front to back: nearly all of a packing then lies behind what is drawn, tile by tile.
    let mut discs: Vec<(usize, Disc)> = particles
        .iter()
        .enumerate()
        .filter_map(|(index, particle)| Some((index, Disc::new(&view, particle, side, side)?)))
        .collect();
    discs.sort_unstable_by(|(i, a), (j, b)| b.front().total_cmp(&a.front()).then(i.cmp(j)));
    let mut depth = vec![f32::NEG_INFINITY; side * side];
    let mut owner = vec![u32::MAX; side * side];
    let mut farthest = vec![f32::NEG_INFINITY; tiles * tiles];
    for (index, disc) in &discs {
        let front = disc.front() as f32;
        for tile_row in disc.rows.start / TILE..disc.rows.end.div_ceil(TILE) {
            for tile_column in disc.columns.start / TILE..disc.columns.end.div_ceil(TILE) {
                let tile = tile_row * tiles + tile_column;
                if front <= farthest[tile] {
                    continue;
                }
                let rows = tile_row * TILE..((tile_row + 1) * TILE).min(side);
                let columns = tile_column * TILE..((tile_column + 1) * TILE).min(side);
                let mut drawn = false;
                for row in rows.start.max(disc.rows.start)..rows.end.min(disc.rows.end) {
                    for column in columns.start.max(disc.columns.start)..columns.end.min(disc.columns.end) {
                        let pixel = row * side + column;
                        if let Some((_, at)) = disc.surface(column, row)
                            && at > depth[pixel]
                        {
                            (depth[pixel], owner[pixel]) = (at, *index as u32);
                            drawn = true;
                        }
                    }
                }
                if drawn {
                    let all = rows.flat_map(|row| &depth[row * side..][columns.clone()]);
                    farthest[tile] = all.copied().fold(f32::INFINITY, f32::min);
                }
            }
        }
    }
    owner.retain(|index| *index != u32::MAX);
    owner.sort_unstable();
    owner.dedup();
    owner.into_iter().map(|index| index as usize).collect()
}

/// A PNG of particles: all of them, or the [`visible`] ones of all ranks. `ranks` is the number of ranks of the run.
///
/// # Errors
/// If the PNG encoder fails; it writes to memory, so only on a defect.
pub fn picture(
    particles: &[Shown],
    scene: &Scene,
    ranks: u32,
    colour_by: ColourBy,
) -> Result<Vec<u8>, png::EncodingError> {
    let mut canvas = Canvas::new(SIDE * SCALE, SIDE * SCALE);
    let Scene { low, high, fastest } = *scene;
    let view = View::new(low, high, canvas.width as f64, canvas.height as f64);
    canvas.edges(&view, low, high, true);
    for particle in particles {
        let colour = match colour_by {
            ColourBy::Rank => rank_colour(particle.rank, ranks),
            ColourBy::Speed => speed_colour(if fastest > 0.0 { particle.speed() / fastest } else { 0.0 }),
        };
        canvas.sphere(&view, particle, colour);
    }
    canvas.edges(&view, low, high, false);
    canvas.shade_crevices();
    let mut image = Image::new(SIDE + LEGEND, SIDE);
    canvas.average_into(&mut image);
    match colour_by {
        ColourBy::Rank => rank_legend(&mut image, ranks),
        ColourBy::Speed => speed_bar(&mut image, fastest),
    }
    image.encode()
}

/// A sphere on the canvas, in pixels.
struct Disc {
    x: f64,
    y: f64,
    near: f64,
    radius: f64,
    columns: std::ops::Range<usize>,
    rows: std::ops::Range<usize>,
}

impl Disc {
    /// `None` if the sphere is nowhere.
    fn new(view: &View, particle: &Shown, width: usize, height: usize) -> Option<Self> {
        let [x, y, near] = view.project(particle.position);
        // At least a pixel, so that no particle of a large packing is lost between pixels.
        let radius = (particle.radius * view.scale).max(0.75);
        if !(x.is_finite() && y.is_finite() && near.is_finite() && radius < 1e6) {
            return None;
        }
        let columns = clamp_range(x - radius, x + radius, width);
        let rows = clamp_range(y - radius, y + radius, height);
        Some(Self { x, y, near, radius, columns, rows })
    }

    /// Nearness of its nearest point.
    fn front(&self) -> f64 {
        self.near + self.radius
    }

    /// Normal (right, up, towards the viewer) and nearness of the surface in a pixel that it covers.
    fn surface(&self, column: usize, row: usize) -> Option<([f64; 3], f32)> {
        let u = (column as f64 + 0.5 - self.x) / self.radius;
        let v = (self.y - row as f64 - 0.5) / self.radius;
        let square = u * u + v * v;
        if square > 1.0 {
            return None;
        }
        let w = (1.0 - square).sqrt();
        Some(([u, v, w], (self.near + w * self.radius) as f32))
    }
}

/// The box to show: the domain, unless the particles need far less of it or lie outside.
fn seen(reach: &[f64; 7], min: [f64; 3], max: [f64; 3]) -> ([f64; 3], [f64; 3]) {
    let mut low = [0, 1, 2].map(|axis| -reach[axis]);
    let mut high = [3, 4, 5].map(|axis| reach[axis]);
    if low[0] > high[0] {
        return (min, max);
    }
    for axis in 0..3 {
        let side = max[axis] - min[axis];
        // Sideways the whole domain; empty height only as far as it does not shrink the packing.
        if axis < 2 && high[axis] - low[axis] > 0.3 * side {
            (low[axis], high[axis]) =
                (low[axis].min(min[axis]).max(min[axis] - side), high[axis].max(max[axis]));
        }
        high[axis] = high[axis].min(max[axis] + side);
    }
    low[2] = low[2].min(min[2]).max(min[2] - (max[2] - min[2]));
    (low, high)
}

impl Canvas {
    fn new(width: usize, height: usize) -> Self {
        let background = BACKGROUND.map(|x| x as f32);
        let pixels = width * height;
        Self { width, height, colour: vec![background; pixels], depth: vec![f32::NEG_INFINITY; pixels] }
    }

    fn sphere(&mut self, view: &View, particle: &Shown, colour: [f64; 3]) {
        let Some(disc) = Disc::new(view, particle, self.width, self.height) else { return };
        // Light from the upper left, behind the viewer.
        const LIGHT: [f64; 3] = [-0.408, 0.577, 0.707];
        for row in disc.rows.clone() {
            for column in disc.columns.clone() {
                let Some(([u, v, w], depth)) = disc.surface(column, row) else { continue };
                let pixel = row * self.width + column;
                if depth <= self.depth[pixel] {
                    continue;
                }
                self.depth[pixel] = depth;
                let facing = (u * LIGHT[0] + v * LIGHT[1] + w * LIGHT[2]).max(0.0);
                let light = 0.38 + 0.62 * facing;
                let shine = 0.22 * facing.powi(24);
                // The rim is darkened, so that neighbours of one colour stay apart.
                let rim = 0.72 + 0.28 * w;
                self.colour[pixel] = colour.map(|c| ((c * light * rim + shine).min(1.0)) as f32);
            }
        }
    }

    /// Darkens pixels that lie far behind those around them, as little light reaches gaps between particles.
    fn shade_crevices(&mut self) {
        const RADIUS: isize = 7;
        const TAPS: [(isize, isize); 8] =
            [(RADIUS, 0), (-RADIUS, 0), (0, RADIUS), (0, -RADIUS), (5, 5), (-5, 5), (5, -5), (-5, -5)];
        let source = self.depth.clone();
        for row in 0..self.height as isize {
            for column in 0..self.width as isize {
                let pixel = row as usize * self.width + column as usize;
                let own = source[pixel];
                if own == f32::NEG_INFINITY {
                    continue;
                }
                let mut hidden = 0.0;
                for (right, down) in TAPS {
                    let (x, y) = (column + right, row + down);
                    if x < 0 || y < 0 || x >= self.width as isize || y >= self.height as isize {
                        continue;
                    }
                    let rise = source[y as usize * self.width + x as usize] - own - 1.0;
                    hidden += (rise / (3.0 * RADIUS as f32)).clamp(0.0, 1.0);
                }
                let light = 1.0 - 0.6 * hidden / TAPS.len() as f32;
                self.colour[pixel] = self.colour[pixel].map(|c| c * light);
            }
        }
    }

    /// Draws the edges of the box: those behind everything first, the three nearest ones not at all.
    fn edges(&mut self, view: &View, low: [f64; 3], high: [f64; 3], behind: bool) {
        let grey = [0.62_f32, 0.65, 0.70];
        for axis in 0..3 {
            for side in 0..4 {
                let mut start = low;
                let others = [(axis + 1) % 3, (axis + 2) % 3];
                for (bit, other) in others.into_iter().enumerate() {
                    if side >> bit & 1 == 1 {
                        start[other] = high[other];
                    }
                }
                let mut end = start;
                end[axis] = high[axis];
                let [a, b] = [view.project(start), view.project(end)];
                let length = ((b[0] - a[0]).abs()).max((b[1] - a[1]).abs()).ceil().max(1.0);
                for step in 0..=(length as usize) {
                    let t = step as f64 / length;
                    let [x, y, near] = [0, 1, 2].map(|k| a[k] + t * (b[k] - a[k]));
                    for (dx, dy) in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)] {
                        let (column, row) = (x + dx, y + dy);
                        if column < 0.0
                            || row < 0.0
                            || column >= self.width as f64
                            || row >= self.height as f64
                        {
                            continue;
                        }
                        let pixel = row as usize * self.width + column as usize;
                        if behind || near as f32 > self.depth[pixel] {
                            self.colour[pixel] = grey;
                        }
                    }
                }
            }
        }
    }

    fn average_into(&self, image: &mut Image) {
        for row in 0..SIDE {
            for column in 0..SIDE {
                let mut sum = [0.0_f32; 3];
                for y in 0..SCALE {
                    for x in 0..SCALE {
                        let pixel = self.colour[(row * SCALE + y) * self.width + column * SCALE + x];
                        (0..3).for_each(|k| sum[k] += pixel[k]);
                    }
                }
                let colour = sum.map(|c| (c / (SCALE * SCALE) as f32 * 255.0 + 0.5) as u8);
                image.set(column as isize, row as isize, colour);
            }
        }
    }
}

fn clamp_range(low: f64, high: f64, end: usize) -> std::ops::Range<usize> {
    let start = low.floor().max(0.0) as usize;
    start..(high.ceil().max(0.0) as usize).min(end).max(start)
}

/// Colours of up to ten ranks that stay apart for most colour-blind readers too (Tableau 10), then hues by the golden
/// angle in three lightnesses.
fn rank_colour(rank: u32, ranks: u32) -> [f64; 3] {
    const TEN: [[u8; 3]; 10] = [
        [78, 121, 167],
        [242, 142, 43],
        [89, 161, 79],
        [225, 87, 89],
        [118, 183, 178],
        [237, 201, 72],
        [176, 122, 161],
        [156, 117, 95],
        [255, 157, 167],
        [130, 130, 130],
    ];
    if ranks <= 10 {
        return TEN[rank as usize % 10].map(|c| f64::from(c) / 255.0);
    }
    let hue = (f64::from(rank) * 0.618_033_988_749_894_9).fract();
    let (value, saturation) = [(0.88, 0.62), (0.68, 0.70), (0.96, 0.42)][rank as usize % 3];
    let channel = |offset: f64| {
        let t = ((hue + offset).fract() * 6.0 - 3.0).abs() - 1.0;
        value * (1.0 - saturation * (1.0 - t.clamp(0.0, 1.0)))
    };
    [channel(0.0), channel(2.0 / 3.0), channel(1.0 / 3.0)]
}

/// Viridis, from nine of its colours.
fn speed_colour(share: f64) -> [f64; 3] {
    const VIRIDIS: [[f64; 3]; 9] = [
        [68.0, 1.0, 84.0],
        [71.0, 44.0, 122.0],
        [59.0, 81.0, 139.0],
        [44.0, 113.0, 142.0],
        [33.0, 144.0, 141.0],
        [39.0, 173.0, 129.0],
        [92.0, 200.0, 99.0],
        [170.0, 220.0, 50.0],
        [253.0, 231.0, 37.0],
    ];
    let place = share.clamp(0.0, 1.0) * 8.0;
    let index = (place as usize).min(7);
    let rest = place - index as f64;
    [0, 1, 2].map(|k| (VIRIDIS[index][k] * (1.0 - rest) + VIRIDIS[index + 1][k] * rest) / 255.0)
}

struct Image {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Image {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![255; width * height * 3] }
    }

    fn set(&mut self, x: isize, y: isize, colour: [u8; 3]) {
        if x >= 0 && y >= 0 && (x as usize) < self.width && (y as usize) < self.height {
            let at = (y as usize * self.width + x as usize) * 3;
            self.pixels[at..at + 3].copy_from_slice(&colour);
        }
    }

    fn fill(&mut self, x: usize, y: usize, width: usize, height: usize, colour: [u8; 3]) {
        for row in y..y + height {
            for column in x..x + width {
                self.set(column as isize, row as isize, colour);
            }
        }
    }

    /// Writes text with glyphs of 5 x 7 dots, each dot 2 x 2 pixels.
    fn text(&mut self, x: usize, y: usize, text: &str) {
        for (i, letter) in text.chars().enumerate() {
            for (row, bits) in glyph(letter).into_iter().enumerate() {
                for column in 0..5 {
                    if bits >> (4 - column) & 1 == 1 {
                        self.fill(x + i * 12 + column * 2, y + row * 2, 2, 2, INK);
                    }
                }
            }
        }
    }

    fn encode(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header()?.write_image_data(&self.pixels)?;
        Ok(bytes)
    }
}

/// Dots of a letter, a row per number, the leftmost dot in bit 4. Only what legends need.
fn glyph(letter: char) -> [u8; 7] {
    match letter {
        '0' => [14, 17, 19, 21, 25, 17, 14],
        '1' => [4, 12, 4, 4, 4, 4, 14],
        '2' => [14, 17, 1, 2, 4, 8, 31],
        '3' => [31, 2, 4, 2, 1, 17, 14],
        '4' => [2, 6, 10, 18, 31, 2, 2],
        '5' => [31, 16, 30, 1, 1, 17, 14],
        '6' => [6, 8, 16, 30, 17, 17, 14],
        '7' => [31, 1, 2, 4, 8, 8, 8],
        '8' => [14, 17, 17, 14, 17, 17, 14],
        '9' => [14, 17, 17, 15, 1, 2, 12],
        '.' => [0, 0, 0, 0, 0, 12, 12],
        '-' => [0, 0, 0, 31, 0, 0, 0],
        '/' => [0, 1, 2, 4, 8, 16, 0],
        'a' => [0, 0, 14, 1, 15, 17, 15],
        'd' => [1, 1, 13, 19, 17, 17, 15],
        'e' => [0, 0, 14, 17, 31, 16, 14],
        'k' => [16, 16, 18, 20, 24, 20, 18],
        'm' => [0, 0, 26, 21, 21, 17, 17],
        'n' => [0, 0, 22, 25, 17, 17, 17],
        'p' => [0, 0, 30, 17, 30, 16, 16],
        'r' => [0, 0, 22, 25, 16, 16, 16],
        's' => [0, 0, 14, 16, 14, 1, 30],
        _ => [0; 7],
    }
}

fn rank_legend(image: &mut Image, ranks: u32) {
    let left = SIDE + 10;
    image.text(left, 50, "rank");
    // Beyond 36 entries the list would leave the picture; then as many, evenly taken.
    let shown = ranks.min(36);
    for entry in 0..shown {
        let rank = (u64::from(entry) * u64::from(ranks) / u64::from(shown.max(1))) as u32;
        let y = 76 + entry as usize * 22;
        let colour = rank_colour(rank, ranks).map(|c| (c * 255.0) as u8);
        image.fill(left, y, 24, 16, colour);
        image.text(left + 34, y + 1, &rank.to_string());
    }
}

fn speed_bar(image: &mut Image, fastest: f64) {
    let left = SIDE + 10;
    let (top, height) = (80, 400);
    image.text(left, 50, "speed m/s");
    for row in 0..height {
        let share = 1.0 - row as f64 / (height - 1) as f64;
        image.fill(left, top + row, 24, 1, speed_colour(share).map(|c| (c * 255.0) as u8));
    }
    for tick in 0..=4 {
        let share = 1.0 - f64::from(tick) / 4.0;
        let y = top + tick as usize * (height - 1) / 4;
        image.fill(left + 24, y, 6, 2, INK);
        image.text(left + 36, (y - 6).min(top + height), &tick_label(share * fastest));
    }
}

/// A number with three digits that count, as plain as possible.
fn tick_label(value: f64) -> String {
    if value == 0.0 {
        "0".into()
    } else if (1e-3..1e4).contains(&value) {
        let digits = (2 - value.log10().floor() as i32).max(0) as usize;
        format!("{value:.digits$}")
    } else {
        format!("{value:.1e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ball(position: [f64; 3], rank: u32) -> Shown {
        Shown {
            id: 0,
            position,
            radius: 0.2,
            velocity: [f64::from(rank), 0.0, 0.0],
            spin: [0.0; 3],
            rank,
            material: 0,
        }
    }

    fn draw(particles: &[Shown], ranks: u32, by: ColourBy) -> Result<Vec<u8>, png::EncodingError> {
        picture(particles, &Scene::new(Scene::reach(particles), [0.0; 3], [1.0; 3]), ranks, by)
    }

    #[test]
    fn what_each_rank_culls_does_not_show() {
        let packing: Vec<Shown> = (0..8000)
            .map(|i| {
                let site = [i % 20, i / 20 % 20, i / 400].map(|k| (f64::from(k) + 0.5) / 20.0);
                Shown { radius: 0.025, ..ball(site, (i / 2000) as u32) }
            })
            .collect();
        let scene = Scene::new(Scene::reach(&packing), [0.0; 3], [1.0; 3]);
        let sent: Vec<Shown> = packing
            .chunks(2000)
            .flat_map(|own| visible(own, &scene).into_iter().map(|index| own[index]))
            .collect();
        assert!(sent.len() < packing.len() / 2, "{} of {} are sent", sent.len(), packing.len());
        let all = picture(&packing, &scene, 4, ColourBy::Rank).unwrap();
        assert!(picture(&sent, &scene, 4, ColourBy::Rank).unwrap() == all);
        let few = &sent[..sent.len() - 50];
        assert!(picture(few, &scene, 4, ColourBy::Rank).unwrap() != all, "those that are sent do show");
    }

    fn decode(bytes: &[u8]) -> (usize, usize, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        (info.width as usize, info.height as usize, pixels)
    }

    #[test]
    fn the_nearer_sphere_hides_the_one_behind_it() {
        // The viewer looks along (-1, 1) sideways and down: a sphere towards +x -y and up is nearer.
        let step = [0.3 * View::C * View::COS, -0.3 * View::C * View::COS, 0.3 * View::SIN];
        let middle = [0.5; 3];
        let near = [0, 1, 2].map(|k| middle[k] + step[k]);
        for order in [[ball(middle, 0), ball(near, 1)], [ball(near, 1), ball(middle, 0)]] {
            let (width, _, pixels) = decode(&draw(&order, 2, ColourBy::Rank).unwrap());
            let [mut orange, mut blue] = [0, 0];
            for pixel in
                pixels.chunks(3).enumerate().filter(|(i, _)| i % width < SIDE).map(|(_, pixel)| pixel)
            {
                orange += usize::from(pixel[0] > pixel[2].saturating_add(60));
                blue += usize::from(pixel[2] > pixel[0].saturating_add(40));
            }
            assert!(orange > 10_000, "the near sphere shows {orange} pixels");
            assert!(blue < orange / 50, "the hidden sphere shows {blue} pixels");
        }
    }

    #[test]
    fn a_picture_of_nothing_or_of_lost_particles_is_still_a_picture() {
        let lost = [ball([f64::NAN, 0.0, 0.0], 0), ball([1e30, 0.0, 0.0], 0), ball([0.5; 3], 0)];
        for particles in [&lost[..0], &lost[..]] {
            let bytes = draw(particles, 1, ColourBy::Speed).unwrap();
            assert_eq!(decode(&bytes).0, SIDE + LEGEND);
        }
    }

    #[test]
    fn neighbouring_ranks_have_colours_apart() {
        for ranks in [2, 10, 12, 64] {
            for rank in 1..ranks {
                let [a, b] = [rank_colour(rank - 1, ranks), rank_colour(rank, ranks)];
                let apart: f64 = (0..3).map(|k| (a[k] - b[k]).abs()).sum();
                assert!(apart > 0.15, "ranks {} and {rank} of {ranks}: {apart}", rank - 1);
            }
        }
    }
}
