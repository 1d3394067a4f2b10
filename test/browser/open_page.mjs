// node open_page.mjs FILE WIDTH...: opens an HTML file in headless Chromium once per window width, and prints what it
// found as JSON. The packages come from the folder in NODE_FOLDER.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(`${process.env.NODE_FOLDER}/package.json`);
const { chromium: playwright } = require('playwright-core');
const chromium = (await import(pathToFileURL(require.resolve('@sparticuz/chromium')))).default;

const [file, ...widths] = process.argv.slice(2);
const browser = await playwright.launch({ executablePath: await chromium.executablePath(), args: chromium.args });
const page = await browser.newPage();  // one for all: this Chromium is a single process and ends with its page
const found = [];
let problems, requests;
page.on('console', (message) => problems.push(message.text()));
page.on('pageerror', (error) => problems.push(String(error)));
page.on('request', (request) => requests.push(request.url().split(',')[0]));
for (const width of widths.map(Number)) {
  problems = [];
  requests = [];
  await page.setViewportSize({ width, height: 900 });
  await page.goto(pathToFileURL(file).href, { waitUntil: 'load' });
  const seen = await page.evaluate(() => ({
    title: document.title,
    headings: [...document.querySelectorAll('h1, h2')].map((heading) => heading.innerText),
    images: [...document.images].map((image) => [image.naturalWidth, image.getBoundingClientRect().width]),
    rows: document.querySelectorAll('tr').length,
    overflow: document.documentElement.scrollWidth - window.innerWidth,
    mode: document.compatMode,
  }));
  if (process.env.SCREENSHOT) await page.screenshot({ path: `${process.env.SCREENSHOT}-${width}.png`, fullPage: true });
  found.push({ ...seen, problems, requests });
}
await browser.close();
console.log(JSON.stringify(found));
