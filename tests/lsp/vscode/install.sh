#!/bin/sh
# VS Code without a screen, into the folder that is named: the packages of package.json, and of them
# the few parts that are compiled. Needs Node.js 20 with its headers, a C++ compiler and ripgrep.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
top=$PWD
cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" .
npm ci --ignore-scripts

headers=$(dirname "$(dirname "$(node -p process.execPath)")")
gyp="$(npm root -g)/npm/node_modules/node-gyp/bin/node-gyp.js"
npm_config_nodedir=$headers npm rebuild argon2 --build-from-source

cd node_modules/code-server/lib/vscode
npm install --omit=dev --ignore-scripts
for part in @vscode/spdlog native-watchdog node-pty; do
  (cd "node_modules/$part" && node "$gyp" rebuild --nodedir="$headers" > /dev/null 2>&1)
done
mkdir -p node_modules/@vscode/ripgrep/bin
ln -sf "$(command -v rg)" node_modules/@vscode/ripgrep/bin/rg
ln -sfn node_modules node_modules.asar
(cd extensions && npm install --omit=dev --ignore-scripts)
touch "$top/.installed"
