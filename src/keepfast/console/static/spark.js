// A line of figures over time, small enough to stand beside a number.
import { s } from "./dom.js";

const WIDTH = 160, HEIGHT = 36;

export function spark(points, label, colour = "accent") {
  const known = points.filter((one) => one !== null);
  const root = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: `spark ${colour}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  root.append(s("line", { x1: 0, y1: HEIGHT - 1, x2: WIDTH, y2: HEIGHT - 1, class: "floor" }));
  if (known.length < 2) return root;
  const top = Math.max(...known, 1e-9) * 1.1, step = WIDTH / (Math.max(points.length, 30) - 1);
  const from = WIDTH - step * (points.length - 1);
  let line = "", area = "", first = null, last = null;
  const close = () => { if (first !== null) area += `L${last} ${HEIGHT - 1}L${first} ${HEIGHT - 1}Z`; first = null; };
  points.forEach((value, index) => {
    if (value === null) { close(); return; }
    const x = (from + index * step).toFixed(1), y = (HEIGHT - 2 - (value / top) * (HEIGHT - 5)).toFixed(1);
    line += `${first === null ? "M" : "L"}${x} ${y}`;
    area += `${first === null ? "M" : "L"}${x} ${y}`;
    if (first === null) first = x;
    last = x;
  });
  close();
  root.append(s("path", { d: area, class: "area" }), s("path", { d: line, class: "line" }));
  return root;
}
export const newest = (points) => points.length ? points[points.length - 1] : null;
