"use strict";
// The part of the map that is in view, and its way to pixels and back.
function makeView(plot, redraw) {
  const WHOLE = { x: [-40, 1040], y: [-40, 1040] }; // the map's own coordinates are 0 to 1000, y upwards
  const CLOSEST = 400; // how many times the whole map
  let x = WHOLE.x.slice(), y = WHOLE.y.slice();

  const width = () => plot.clientWidth, height = () => plot.clientHeight;
  const zoom = () => (WHOLE.x[1] - WHOLE.x[0]) / (x[1] - x[0]);
  const isWhole = () => zoom() <= 1.01;
  const toX = (at) => ((at - x[0]) / (x[1] - x[0])) * width();
  const toY = (at) => (1 - (at - y[0]) / (y[1] - y[0])) * height();
  const fromX = (pixel) => x[0] + (pixel / width()) * (x[1] - x[0]);
  const fromY = (pixel) => y[0] + (1 - pixel / height()) * (y[1] - y[0]);
  const has = (atX, atY) => atX >= x[0] && atX <= x[1] && atY >= y[0] && atY <= y[1];

  // What is under the pixel stays there. A factor below 1 looks closer.
  function zoomAt(by, pixelX, pixelY) {
    const next = Math.min(CLOSEST, zoom() / by);
    const around = (middle, [low, high], whole) => {
      const span = (whole[1] - whole[0]) / next, share = (middle - low) / (high - low);
      return [middle - share * span, middle + (1 - share) * span];
    };
    [x, y] = next <= 1
      ? [WHOLE.x.slice(), WHOLE.y.slice()]
      : [around(fromX(pixelX), x, WHOLE.x), around(fromY(pixelY), y, WHOLE.y)];
    redraw();
  }
  function pan(dx, dy) {
    const byX = fromX(0) - fromX(dx), byY = fromY(0) - fromY(dy);
    [x, y] = [[x[0] + byX, x[1] + byX], [y[0] + byY, y[1] + byY]];
    redraw();
  }
  return { width, height, zoom, isWhole, toX, toY, has, zoomAt, pan };
}
